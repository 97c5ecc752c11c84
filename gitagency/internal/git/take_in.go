package git

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Incoming is what somebody who is not trusted wants to bring into the repository.
type Incoming struct {
	// Pack is what "pack-objects --revs --thin --stdout" wrote, or anything; it may be nil. It has to end when
	// ctx does, and is not read to its end when it is refused.
	Pack io.Reader

	Ref    string   // required; full name of the only ref that moves
	New    string   // required; the commit it moves to
	Old    string   // from where; empty when it must not exist
	Also   []string // blobs that must be there afterwards
	Stay   bool     // the ref does not move: New is for somebody to refer to at once
	Reason string   // for the log of the ref; git wants one, so there is a default
}

// MovedError is a ref that is not where it was said to be. Nothing has changed.
type MovedError struct {
	Ref, Want, Have string // empty: it is not there
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s is at %s and not at %s", e.Ref, cmp.Or(e.Have, "nothing"), cmp.Or(e.Want, "nothing"))
}

// SymrefError is a ref that stands for another. Whoever moves it may mean the one or the other.
type SymrefError struct{ Ref, Target string }

func (e *SymrefError) Error() string { return fmt.Sprintf("%s stands for %s", e.Ref, e.Target) }

// IncompleteError is something that was to be brought in, and lacks an object or has another in its place.
type IncompleteError struct {
	OID, Want string // the object, and what it has to be
	Have      string // what it is; empty when it is not there
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%s is to be a %s and is %s", e.OID, e.Want, cmp.Or(e.Have, "missing"))
}

// TakeIn brings commits in from somewhere that is not trusted, and moves one ref to them, all or nothing.
// Whoever brings in for the same ref takes turns; r is best one that is Holding their lock.
//
//  1. What a killed one left in quarantine goes.
//  2. Git writes the pack there, and hashes and checks every object in it. Nothing outside knows of it.
//  3. All that is needed is found to be there: in the quarantine, or in the repository since before.
//  4. The pack goes to the repository's own. Its index goes last: without that it is not there for git.
//  5. The ref moves, unless somebody moved it.
//
// Killed at 1 to 3, it leaves the quarantine; at 4, the quarantine and a file that no git takes notice of,
// or a pack that nothing refers to, of which everything is there. Such a pack also stays where the ref was
// moved between 3 and 5: once it can be seen, somebody's git may count on it.
func (r *Repo) TakeIn(ctx context.Context, in Incoming) (err error) {
	if err := in.check(); err != nil {
		return err
	}
	dir := filepath.Join(r.ownDir(), incomingPrefix+path.Base(in.Ref))
	if err := durable.RemoveTree(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	if err := os.MkdirAll(filepath.Join(dir, "pack"), 0o777); err != nil {
		return err
	}
	objects := filepath.Join(r.CommonDir, "objects")
	q := place{
		env: []string{
			"GIT_OBJECT_DIRECTORY=" + dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + inList(objects),
			"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=" + os.DevNull, // the objects as they are
			"GIT_ALLOC_LIMIT=1g", // of one object; a delta of a few bytes can ask for any size
		},
		// The index of a pack as well: without it the objects are not there.
		config: []string{"-c", "core.fsync=committed,reference,pack-metadata"},
	}
	if err := r.indexPack(ctx, q, in); err != nil {
		return err
	}
	if err := r.complete(ctx, q, dir, in); err != nil {
		return err
	}
	if err := adopt(filepath.Join(dir, "pack"), filepath.Join(objects, "pack")); err != nil {
		return err
	}
	if in.Stay {
		return nil
	}
	return r.moveOwn(ctx, in)
}

// LogHead writes down that HEAD of a linked worktree went from one commit to another, as a git in that
// worktree would have. The repository is locked.
func (r *Repo) LogHead(name, from, to string, who Identity, at time.Time, why string) error {
	path := filepath.Join(r.AdminDir(name), "logs", "HEAD")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %s <%s> %d +0000\t%s\n", from, to, who.Name, who.Email, at.Unix(), why)
	return errors.Join(err, f.Close())
}

func (in Incoming) check() error {
	oids := slices.Concat([]string{in.New, cmp.Or(in.Old, in.New)}, in.Also)
	if i := slices.IndexFunc(oids, func(oid string) bool {
		return !isOID(oid) || len(oid) != len(in.New) || strings.Trim(oid, "0") == ""
	}); i >= 0 {
		return fmt.Errorf("not a name of an object: %q", oids[i])
	}
	if !validRef(in.Ref) {
		return fmt.Errorf("not a name of a ref: %q", in.Ref)
	}
	return nil
}

// validRef knows git's rules for the full name of a ref: git itself is only asked when everything else is
// done.
func validRef(ref string) bool {
	if !strings.HasPrefix(ref, "refs/") || strings.HasSuffix(ref, ".") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return false
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("~^:?*[\\", r) })
}

// indexPack lets git write the pack into quarantine. A pack without objects leaves nothing there.
func (r *Repo) indexPack(ctx context.Context, q place, in Incoming) error {
	if in.Pack == nil {
		return nil
	}
	head := make([]byte, 12) // "PACK", version, number of objects
	n, err := io.ReadFull(in.Pack, head)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF): // git says what it thinks of a short one
		return fmt.Errorf("read pack: %w", err)
	case err == nil && string(head[:4]) == "PACK" && binary.BigEndian.Uint32(head[8:]) == 0:
		_, err := io.Copy(io.Discard, io.LimitReader(in.Pack, 1<<16)) // its checksum; who writes it should not fail
		return err
	}
	q.config = slices.Concat(durably, q.config)
	run, args := r.at(q, r.inherit), []string{"index-pack", "--stdin", "--fix-thin", "--strict"}
	res, err := proc.Run(ctx, proc.Command{
		Argv: slices.Concat([]string{"git"}, r.globals(q), args),
		Dir:  run.dir, Env: run.env, Inherit: run.inherit,
		Stdin: io.MultiReader(bytes.NewReader(head[:n]), in.Pack),
	})
	switch {
	case err != nil:
		return fmt.Errorf("git index-pack: %w", err)
	case res.ExitCode != 0:
		return &Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return nil
}

// adopt moves the files of a pack from one directory to another on the same file system.
func adopt(from, to string) (err error) {
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(isIdx(a.Name()), isIdx(b.Name())) })
	if err := os.MkdirAll(to, 0o777); err != nil { // git does without it until it has a pack
		return err
	}
	var moved []string
	defer func() {
		if err == nil || slices.ContainsFunc(moved, func(path string) bool { return isIdx(path) == 1 }) {
			return // from its index on, a pack is there, and somebody may need it
		}
		for _, path := range moved {
			err = errors.Join(err, durable.Remove(path))
		}
	}()
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if !strings.HasPrefix(e.Name(), "pack-") || !e.Type().IsRegular() {
			return fmt.Errorf("git index-pack left %q", e.Name())
		}
		if _, err := os.Lstat(target); err == nil { // its name is its content
			same, err := sameContent(source, target)
			if err != nil {
				return err
			}
			if !same && !isDerived(e.Name()) {
				return fmt.Errorf("%s is another pack of the same name", target)
			}
			continue
		}
		if err := os.Rename(source, target); err != nil {
			return err
		}
		moved = append(moved, target)
	}
	return durable.SyncDir(to)
}

func isIdx(name string) int {
	if strings.HasSuffix(name, ".idx") {
		return 1
	}
	return 0
}

// isDerived: what was computed from the same pack may be written in one version or another.
func isDerived(name string) bool { return !strings.HasSuffix(name, ".pack") }

func sameContent(a, b string) (bool, error) {
	fa, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer fb.Close()
	bufA, bufB := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		na, errA := io.ReadFull(fa, bufA)
		nb, errB := io.ReadFull(fb, bufB)
		switch {
		case !bytes.Equal(bufA[:na], bufB[:nb]):
			return false, nil
		case errA == io.EOF || errA == io.ErrUnexpectedEOF:
			return errB == errA, nil
		case errA != nil || errB != nil:
			return false, errors.Join(errA, errB)
		}
	}
}

// sweepOwn removes the lock of a ref that a killed git has left. We hold the repository lock, so that it is none of ours that
// lives, and a git of the person's is waited for.
func (r *Repo) sweepOwn(ctx context.Context, ref string) error {
	path := r.RefPath(ref) + lockSuffix
	seen, err := os.Lstat(path)
	if err != nil || !seen.Mode().IsRegular() {
		return nil // git says what it thinks of it
	}
	gone := func() bool {
		now, err := os.Lstat(path)
		return err != nil || !os.SameFile(seen, now)
	}
	if err := r.waiting.until(ctx, gone); err != nil || gone() {
		return err
	}
	if err := r.removeIdle(path, seen); err != nil && !gone() {
		return err
	}
	return nil
}

// moveOwn moves the ref, as TakeIn found it.
func (r *Repo) moveOwn(ctx context.Context, in Incoming) error {
	old := cmp.Or(in.Old, strings.Repeat("0", len(in.New)))
	if err := r.sweepOwn(ctx, in.Ref); err != nil {
		return err
	}
	err := r.MoveRef(ctx, in.Ref, in.New, old, cmp.Or(in.Reason, "taken in"))
	if err == nil {
		return r.SyncRef(in.Ref)
	}
	if !Refused(err) {
		return err
	}
	found, lookErr := r.Lookup(ctx, in.Ref)
	if lookErr != nil || found[0].OID == in.Old {
		return errors.Join(err, lookErr)
	}
	return &MovedError{Ref: in.Ref, Want: in.Old, Have: found[0].OID}
}
