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

// Verified is what came of hashing a commit and all that it leads to again.
type Verified struct {
	Objects  int      // that were hashed and are what their names say
	Bytes    int64    // of their contents
	Damages  []Damage // what is not
	CutOff   []string // commits whose parents are not here because the repository is shallow
	Promised int      // objects that are not here because the repository is a partial clone
	Stopped  bool     // there was so much damage that the rest was not looked at
	Said     []string // what git complained of, without saying of which object
}

// Damage is an object that is not what its name says.
type Damage struct {
	OID     string
	Kind    string // commit, tree or blob: what it has to be
	Path    string // one that it has, for trees and blobs; empty for that of a commit
	Problem string
	Detail  string // in the words of git or of ours; may be empty
}

// The problems an object can have.
const (
	Missing    = "missing"    // it is not there
	Unreadable = "unreadable" // git cannot read it
	Altered    = "altered"    // its content is that of another object
	Misplaced  = "misplaced"  // it is sound, but not what has to be there
)

// mostDamages is how many are worth naming. Each may cost a git of its own.
const mostDamages = 1000

// Verify hashes a commit, and everything that it leads to, in this process: its history, its trees, their files, and
// what its message says of a frozen state. Git only reads, and is believed nothing: which objects belong to it is taken from those
// that were found good, not from commit graphs, bitmaps, grafts or replacements. progress is called now and then, and may be nil.
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

// objectID is a name in the shape that a million of them take the least room in.
type objectID [sha256.Size]byte

type wanted struct {
	oid, kind, path string
}

type verifier struct {
	repo     *Repo
	root     string
	shallow  map[string]bool
	here     map[objectID]struct{} // what there is of a partial clone; nil when it is none
	seen     map[objectID]struct{}
	todo     []wanted // a stack, so that it holds the siblings of what is being looked at and no more
	progress func(int)
	buffer   []byte
	result   Verified
}

// want adds an object to those that are to be looked at, once.
func (v *verifier) want(oid, kind, path string) error {
	id, ok := parseID(oid)
	if !ok {
		return fmt.Errorf("not a name of an object: %q", oid)
	}
	if _, seen := v.seen[id]; seen {
		return nil
	}
	v.seen[id] = struct{}{}
	if _, here := v.here[id]; !here && v.here != nil { // git would try to fetch it, and die
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

// talk looks at objects until there are no more, or until git dies over one; then the next git goes on behind it.
func (v *verifier) talk(ctx context.Context) (err error) {
	b, err := v.repo.openBatch(ctx)
	if err != nil {
		return err
	}
	var asked []wanted
	answered := 0
	for {
		for len(asked) < mostAsked && len(v.todo) > 0 {
			next := v.todo[len(v.todo)-1]
			if b.ask(next.oid) != nil {
				break // it has died, and says so below
			}
			asked, v.todo = append(asked, next), v.todo[:len(v.todo)-1]
		}
		if len(asked) == 0 {
			said, err := b.end()
			v.note(said)
			return err
		}
		if err := v.look(b, asked[0]); err != nil {
			break
		}
		asked, answered = asked[1:], answered+1
		if v.result.Stopped {
			_, _ = b.end() // it was not done, and we are
			return nil
		}
	}
	_, died := b.end()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var said *Error
	if !errors.As(died, &said) {
		return errors.Join(died, fmt.Errorf("git cat-file stopped at %s", asked[0].oid))
	}
	if answered == 0 { // is it the object, or does git not work at all?
		if _, err := v.repo.read(ctx, place{}, "rev-parse", "--git-dir"); err != nil {
			return err
		}
	}
	v.damaged(asked[0], Unreadable, lastWords(said.Stderr))
	v.todo = append(v.todo, asked[1:]...)
	return nil
}

// look reads one answer. An error means that git answers no more.
func (v *verifier) look(b *batch, w wanted) error {
	kind, size, body, err := b.next()
	if errors.Is(err, errGone) {
		problem, detail := Missing, ""
		file := filepath.Join("objects", w.oid[:2], w.oid[2:])
		if _, err := os.Lstat(filepath.Join(v.repo.CommonDir, file)); err == nil {
			problem, detail = Unreadable, "what is in "+file+" is no object"
		}
		v.damaged(w, problem, detail)
		return nil
	}
	if err != nil {
		return err
	}
	hashed := FormatOf(w.oid).hash()
	fmt.Fprintf(hashed, "%s %d\x00", kind, size)
	// Of a file only the hash is wanted; what leads to others is read first, and believed when its hash is right.
	const most = 1 << 28
	var content []byte
	if (kind == "commit" || kind == "tree") && size <= most {
		if int64(cap(v.buffer)) < size {
			v.buffer = make([]byte, size)
		}
		content = v.buffer[:size]
		if _, err := io.ReadFull(body, content); err != nil {
			return err
		}
		hashed.Write(content)
	} else if _, err := io.Copy(hashed, body); err != nil {
		return err
	}
	if err := b.finish(); err != nil {
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

// note keeps what git said, each thing once.
func (v *verifier) note(said string) {
	const most = 10
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); len(v.result.Said) < most && !slices.Contains(v.result.Said, line) {
			v.result.Said = append(v.result.Said, line)
		}
	}
}
