package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// VerifyResult is the result of hashing a commit and everything reachable from it again.
type Verified struct {
	Objects  int      // objects that have the right hash
	Bytes    int64    // total size of their contents
	Damages  []Damage // objects that are missing, unreadable or wrong
	CutOff   []string // commits whose parents are missing because the repository is shallow
	Promised int      // number of objects that are missing because the repository is a partial clone
	Stopped  bool     // there was so much damage that the rest was not checked
	Said     []string // messages of git that name no object
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
	Missing    = "missing"    // does not exist
	Unreadable = "unreadable" // git cannot read it
	Altered    = "altered"    // has the content of another object
	Misplaced  = "misplaced"  // intact, but not what has to be there
)

// maxDamages is the number of damaged objects after which Verify stops. Each may cost a git process of its own.
const mostDamages = 1000

// Verify hashes a commit and everything reachable from it in this process: its history, trees and blobs, and the
// objects that its message names if it is a captured state. Git only reads objects, and is not trusted: the objects
// to check are taken from those already verified, not from commit graphs, bitmaps, grafts or replacements. progress
// is called now and then, and may be nil.
func (r *Repo) Verify(ctx context.Context, commit string, progress func(objects int)) (Verified, error) {
	shallow, err := r.shallow()
	if err != nil {
		return Verified{}, err
	}
	here, err := r.partial(ctx)
	if err != nil {
		return Verified{}, err
	}
	v := &verifier{repo: r, root: commit, shallow: shallow, here: here, seen: map[objectID]struct{}{}, progress: progress}
	if err := v.want(commit, "commit", ""); err != nil {
		return Verified{}, err
	}
	for len(v.todo) > 0 && !v.result.Stopped {
		if err := v.talk(ctx); err != nil {
			return Verified{}, err
		}
	}
	return v.result, nil
}

// objectID is a binary object name of fixed size, so that a million of them take little memory.
type objectID [sha256.Size]byte

type wanted struct {
	oid, kind, path string
}

type verifier struct {
	repo     *Repo
	root     string
	shallow  map[string]bool
	here     map[objectID]struct{} // objects that exist in a partial clone; nil for any other repository
	seen     map[objectID]struct{}
	todo     []wanted // a stack, so that it holds no more than the siblings along the current path
	progress func(int)
	buffer   []byte
	result   Verified
}

// enqueue queues an object for verification, once.
func (v *verifier) want(oid, kind, path string) error {
	id, ok := parseID(oid)
	if !ok {
		return fmt.Errorf("not a name of an object: %q", oid)
	}
	if _, seen := v.seen[id]; seen {
		return nil
	}
	v.seen[id] = struct{}{}
	if _, here := v.here[id]; !here && v.here != nil { // git would try to fetch it, and fail
		v.result.Promised++
		return nil
	}
	v.todo = append(v.todo, wanted{oid, kind, path})
	return nil
}

func parseID(oid string) (id objectID, ok bool) {
	if !isOID(oid) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(oid))
	return id, err == nil
}

// verifyQueued verifies objects with one git process until the queue is empty, or until git dies over an object. Then
// that object is damaged, and the next git process goes on after it.
func (v *verifier) talk(ctx context.Context) (err error) {
	t, err := v.repo.openCatFileAt(ctx, place{config: fromObjectsOnly})
	if err != nil {
		return err
	}
	var asked []wanted
	answered := 0
	for {
		for len(asked) < mostAsked && len(v.todo) > 0 {
			next := v.todo[len(v.todo)-1]
			if t.send("contents", next.oid) != nil {
				break // git has died; handled below
			}
			asked, v.todo = append(asked, next), v.todo[:len(v.todo)-1]
		}
		if len(asked) == 0 {
			said, err := t.end()
			v.note(said)
			return err
		}
		if err := v.look(t, asked[0]); err != nil {
			break
		}
		asked, answered = asked[1:], answered+1
		if v.result.Stopped {
			_, _ = t.end() // git still had answers to give
			return nil
		}
	}
	_, died := t.end()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var said *Error
	if !errors.As(died, &said) {
		return errors.Join(died, fmt.Errorf("git cat-file stopped at %s", asked[0].oid))
	}
	if answered == 0 { // is the object damaged, or does git not work at all?
		if _, err := v.repo.read(ctx, place{}, "rev-parse", "--git-dir"); err != nil {
			return err
		}
	}
	v.damaged(asked[0], Unreadable, lastWords(said.Stderr))
	v.todo = append(v.todo, asked[1:]...)
	return nil
}

// verifyNext reads and verifies one object. An error means that git answers no more.
func (v *verifier) look(t *teller, w wanted) error {
	a, err := t.next(true)
	if err == nil {
		err = a.checkKnown()
	}
	if err != nil {
		return err
	}
	if a.Missing() {
		problem, detail := Missing, ""
		file := filepath.Join("objects", w.oid[:2], w.oid[2:])
		if _, err := os.Lstat(filepath.Join(v.repo.CommonDir, file)); err == nil {
			problem, detail = Unreadable, "what is in "+file+" is no object"
		}
		v.damaged(w, problem, detail)
		return nil
	}
	kind, size := a.Type, a.size
	hashed := FormatOf(w.oid).hash()
	fmt.Fprintf(hashed, "%s %d\x00", kind, size)
	// A blob is only hashed. A commit or tree is read first, and followed only if its hash is right.
	const most = 1 << 28
	var content []byte
	if (kind == "commit" || kind == "tree") && size <= most {
		if int64(cap(v.buffer)) < size {
			v.buffer = make([]byte, size)
		}
		content = v.buffer[:size]
		if _, err := io.ReadFull(a.body, content); err != nil {
			return err
		}
		hashed.Write(content)
	} else if _, err := io.Copy(hashed, a.body); err != nil {
		return err
	}
	if err := t.finish(); err != nil {
		return err
	}
	switch sum := hex.EncodeToString(hashed.Sum(nil)); {
	case sum != w.oid:
		v.damaged(w, Altered, fmt.Sprintf("what is there is %s %s", kind, sum))
		return nil
	case kind != w.kind:
		v.damaged(w, Misplaced, "it is a "+kind)
		return nil
	case content == nil && kind != "blob":
		v.damaged(w, Unreadable, "it is too large to look into")
		return nil
	}
	v.result.Objects++
	v.result.Bytes += size
	if v.progress != nil && v.result.Objects%100 == 0 {
		v.progress(v.result.Objects)
	}
	switch kind {
	case "commit":
		err = v.follow(w, content)
	case "tree":
		err = v.enter(w, content)
	}
	if err != nil {
		v.damaged(w, Misplaced, err.Error())
	}
	return nil
}

func (v *verifier) damaged(w wanted, problem, detail string) {
	v.result.Damages = append(v.result.Damages, Damage{w.oid, w.kind, w.path, problem, detail})
	v.result.Stopped = len(v.result.Damages) >= mostDamages
}

// addGitMessages keeps the lines of git's standard error, each one once.
func (v *verifier) note(said string) {
	const most = 10
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); len(v.result.Said) < most && !slices.Contains(v.result.Said, line) {
			v.result.Said = append(v.result.Said, line)
		}
	}
}
