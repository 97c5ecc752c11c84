package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// VerifyResult is the result of hashing a commit and everything reachable from it again.
type VerifyResult struct {
	Objects         int      // objects that have the right hash
	Bytes           int64    // total size of their contents
	Damages         []Damage // objects that are missing, unreadable or wrong
	ShallowCommits  []string // commits whose parents are missing because the repository is shallow
	PromisedObjects int      // number of objects that are missing because the repository is a partial clone
	Stopped         bool     // there was so much damage that the rest was not checked
	GitMessages     []string // messages of git that name no object
}

// Damage is an object whose content is not what its name says.
type Damage struct {
	OID     string
	Kind    string // expected type: commit, tree or blob
	Path    string // one of the paths of a tree or blob; empty for a commit and its tree
	Problem string
	Detail  string // explanation by git or by us; may be empty
}

// The problems an object can have.
const (
	ProblemMissing    = "missing"    // does not exist
	ProblemUnreadable = "unreadable" // git cannot read it
	ProblemAltered    = "altered"    // has the content of another object
	ProblemMisplaced  = "misplaced"  // intact, but not what has to be there
)

// maxDamages is the number of damaged objects after which Verify stops. Each may cost a git process of its own.
const maxDamages = 1000

// Verify hashes a commit and everything reachable from it in this process: its history, trees and blobs, and the
// objects that its message names if it is a captured state. Git only reads objects, and is not trusted: the objects
// to check are taken from those already verified, not from commit graphs, bitmaps, grafts or replacements. progress
// is called now and then, and may be nil.
func Verify(ctx context.Context, r *git.Repo, commit string, progress func(objects int)) (VerifyResult, error) {
	shallow, err := r.ShallowCommits()
	if err != nil {
		return VerifyResult{}, err
	}
	here, err := r.PartialCloneObjects(ctx)
	if err != nil {
		return VerifyResult{}, err
	}
	v := &verifier{repo: r, root: commit, shallow: shallow, present: here, seen: map[git.ObjectID]struct{}{}, progress: progress}
	if err := v.enqueue(commit, "commit", ""); err != nil {
		return VerifyResult{}, err
	}
	for len(v.todo) > 0 && !v.result.Stopped {
		if err := v.verifyQueued(ctx); err != nil {
			return VerifyResult{}, err
		}
	}
	return v.result, nil
}

type wantedObject struct {
	oid, kind, path string
}

type verifier struct {
	repo     *git.Repo
	root     string
	shallow  map[string]bool
	present  map[git.ObjectID]struct{} // objects that exist in a partial clone; nil for any other repository
	seen     map[git.ObjectID]struct{}
	todo     []wantedObject // a stack, so that it holds no more than the siblings along the current path
	progress func(int)
	buffer   []byte
	result   VerifyResult
}

// enqueue queues an object for verification, once.
func (v *verifier) enqueue(oid, kind, path string) error {
	id, ok := git.ParseObjectID(oid)
	if !ok {
		return fmt.Errorf("not an object name: %q", oid)
	}
	if _, seen := v.seen[id]; seen {
		return nil
	}
	v.seen[id] = struct{}{}
	if _, here := v.present[id]; !here && v.present != nil { // git would try to fetch it, and fail
		v.result.PromisedObjects++
		return nil
	}
	v.todo = append(v.todo, wantedObject{oid, kind, path})
	return nil
}

// verifyQueued verifies objects with one git process until the queue is empty, or until git dies over an object. Then
// that object is damaged, and the next git process goes on after it.
func (v *verifier) verifyQueued(ctx context.Context) (err error) {
	t, err := v.repo.OpenCatFileAt(ctx, git.RunOptions{Config: git.ObjectsOnlyArgs})
	if err != nil {
		return err
	}
	var asked []wantedObject
	answered := 0
	for {
		for len(asked) < git.MaxQuestions && len(v.todo) > 0 {
			next := v.todo[len(v.todo)-1]
			if t.Send("contents", next.oid) != nil {
				break // git has died; handled below
			}
			asked, v.todo = append(asked, next), v.todo[:len(v.todo)-1]
		}
		if len(asked) == 0 {
			said, err := t.End()
			v.addGitMessages(said)
			return err
		}
		if err := v.verifyNext(t, asked[0]); err != nil {
			break
		}
		asked, answered = asked[1:], answered+1
		if v.result.Stopped {
			_, _ = t.End() // git still had answers to give
			return nil
		}
	}
	_, died := t.End()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var said *git.Error
	if !errors.As(died, &said) {
		return errors.Join(died, fmt.Errorf("git cat-file stopped at %s", asked[0].oid))
	}
	if answered == 0 { // is the object damaged, or does git not work at all?
		if _, err := v.repo.RunRead(ctx, git.RunOptions{}, "rev-parse", "--git-dir"); err != nil {
			return err
		}
	}
	v.addDamage(asked[0], ProblemUnreadable, git.StderrReason(said.Stderr))
	v.todo = append(v.todo, asked[1:]...)
	return nil
}

// verifyNext reads and verifies one object. An error means that git answers no more.
func (v *verifier) verifyNext(t *git.CatFile, w wantedObject) error {
	a, err := t.Next(true)
	if err == nil {
		err = a.CheckKnown()
	}
	if err != nil {
		return err
	}
	if a.Missing() {
		problem, detail := ProblemMissing, ""
		file := filepath.Join("objects", w.oid[:2], w.oid[2:])
		if _, err := os.Lstat(filepath.Join(v.repo.CommonDir, file)); err == nil {
			problem, detail = ProblemUnreadable, file+" is not a valid object"
		}
		v.addDamage(w, problem, detail)
		return nil
	}
	kind, size := a.Type, a.Size
	hashed := object.FormatOf(w.oid).NewHash()
	fmt.Fprintf(hashed, "%s %d\x00", kind, size)
	// A blob is only hashed. A commit or tree is read first, and followed only if its hash is right.
	const most = 1 << 28
	var content []byte
	if (kind == "commit" || kind == "tree") && size <= most {
		if int64(cap(v.buffer)) < size {
			v.buffer = make([]byte, size)
		}
		content = v.buffer[:size]
		if _, err := io.ReadFull(a.Body, content); err != nil {
			return err
		}
		hashed.Write(content)
	} else if _, err := io.Copy(hashed, a.Body); err != nil {
		return err
	}
	if err := t.Finish(); err != nil {
		return err
	}
	switch sum := hex.EncodeToString(hashed.Sum(nil)); {
	case sum != w.oid:
		v.addDamage(w, ProblemAltered, fmt.Sprintf("its content is %s %s", kind, sum))
		return nil
	case kind != w.kind:
		v.addDamage(w, ProblemMisplaced, "it is a "+kind)
		return nil
	case content == nil && kind != "blob":
		v.addDamage(w, ProblemUnreadable, "it is too large to check")
		return nil
	}
	v.result.Objects++
	v.result.Bytes += size
	if v.progress != nil && v.result.Objects%100 == 0 {
		v.progress(v.result.Objects)
	}
	switch kind {
	case "commit":
		err = v.queueCommit(w, content)
	case "tree":
		err = v.queueTree(w, content)
	}
	if err != nil {
		v.addDamage(w, ProblemMisplaced, err.Error())
	}
	return nil
}

func (v *verifier) addDamage(w wantedObject, problem, detail string) {
	v.result.Damages = append(v.result.Damages, Damage{w.oid, w.kind, w.path, problem, detail})
	v.result.Stopped = len(v.result.Damages) >= maxDamages
}

// addGitMessages keeps the lines of git's standard error, each one once.
func (v *verifier) addGitMessages(said string) {
	const most = 10
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); len(v.result.GitMessages) < most && !slices.Contains(v.result.GitMessages, line) {
			v.result.GitMessages = append(v.result.GitMessages, line)
		}
	}
}
