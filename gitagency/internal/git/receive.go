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

// ReceiveRequest describes objects from an untrusted source that are to be added to the repository, and the ref to
// move.
type ReceiveRequest struct {
	// Pack is the output of "pack-objects --revs --thin --stdout", or anything else, because it is untrusted; it may
	// be nil. It must end when ctx does, and is not read to its end when it is refused.
	Pack io.Reader

	Ref      string   // required; full name of the only ref that moves
	New      string   // required; the commit it moves to
	Old      string   // the commit it moves from; empty when the ref must not exist
	Blobs    []string // blobs that must exist afterwards
	LeaveRef bool     // the ref does not move: the caller makes another reference to New at once
	Reason   string   // message of the reflog entry; git requires one, so there is a default
}

// RefMovedError reports a ref that is not at the expected object. Nothing has changed.
type RefMovedError struct {
	Ref, Want, Have string // object ids; empty: the ref does not exist
}

func (e *RefMovedError) Error() string {
	return fmt.Sprintf("%s is at %s and not at %s", e.Ref, cmp.Or(e.Have, "nothing"), cmp.Or(e.Want, "nothing"))
}

// SymrefError reports a symbolic ref. It is ambiguous whether to move the ref or its target.
type SymrefError struct{ Ref, Target string }

func (e *SymrefError) Error() string { return fmt.Sprintf("%s stands for %s", e.Ref, e.Target) }

// IncompleteError reports an object that received history needs and that is missing or of another type.
type IncompleteError struct {
	OID, Want string // id and required type of the object
	Have      string // its actual type; empty when it is missing
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%s is to be a %s and is %s", e.OID, e.Want, cmp.Or(e.Have, "missing"))
}

// Receive adds commits from an untrusted source to the repository and moves one ref to them, all or nothing. Calls
// for the same ref must be serialized; r is best one that WithLock returned for their lock.
//
//  1. Delete the quarantine directory that a killed process left.
//  2. git index-pack writes the pack into quarantine, and hashes and checks every object in it. No other process sees it.
//  3. Check that all needed objects exist: in the quarantine, or in the repository before.
//  4. Move the pack to the repository's objects. Its .idx goes last: without it git does not see the pack.
//  5. Move the ref, unless it was moved meanwhile.
//
// A process killed in 1 to 3 leaves the quarantine; in 4, the quarantine and a file that git ignores, or a complete
// pack without references. Such a pack also stays where the ref was moved between 3 and 5: once it is visible,
// another git may rely on it.
func (r *Repo) Receive(ctx context.Context, in ReceiveRequest) (err error) {
	if err := in.validate(); err != nil {
		return err
	}
	dir := filepath.Join(r.agencyDir(), quarantinePrefix+path.Base(in.Ref))
	if err := durable.RemoveTree(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	if err := os.MkdirAll(filepath.Join(dir, "pack"), 0o777); err != nil {
		return err
	}
	objects := filepath.Join(r.CommonDir, "objects")
	q := runOptions{
		env: []string{
			"GIT_OBJECT_DIRECTORY=" + dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoteAlternate(objects),
			"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=" + os.DevNull, // the real objects, without replacements and grafts
			"GIT_ALLOC_LIMIT=1g", // per object; a delta of a few bytes can ask for any size
		},
		// Fsync the .idx of the pack as well: without it the objects are lost.
		config: []string{"-c", "core.fsync=committed,reference,pack-metadata"},
	}
	if err := r.indexPack(ctx, q, in); err != nil {
		return err
	}
	if err := r.checkComplete(ctx, q, in); err != nil {
		return err
	}
	if err := movePack(filepath.Join(dir, "pack"), filepath.Join(objects, "pack")); err != nil {
		return err
	}
	if in.LeaveRef {
		return nil
	}
	return r.moveReceivedRef(ctx, in)
}

// AppendHeadReflog appends an entry to the HEAD reflog of a linked worktree, as a git in that worktree would. The
// caller holds the repository lock.
func (r *Repo) AppendHeadReflog(name, from, to string, who Identity, at time.Time, why string) error {
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

// validate checks the ids and the ref name of a request.
func (in ReceiveRequest) validate() error {
	oids := slices.Concat([]string{in.New, cmp.Or(in.Old, in.New)}, in.Blobs)
	if i := slices.IndexFunc(oids, func(oid string) bool {
		return !isOID(oid) || len(oid) != len(in.New) || strings.Trim(oid, "0") == ""
	}); i >= 0 {
		return fmt.Errorf("not a name of an object: %q", oids[i])
	}
	if !isValidRef(in.Ref) {
		return fmt.Errorf("not a name of a ref: %q", in.Ref)
	}
	return nil
}

// isValidRef checks the full name of a ref by git's rules, because git itself checks it only in the last step.
func isValidRef(ref string) bool {
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

// indexPack has git write the pack into quarantine. A pack without objects leaves nothing there.
func (r *Repo) indexPack(ctx context.Context, q runOptions, in ReceiveRequest) error {
	if in.Pack == nil {
		return nil
	}
	head := make([]byte, 12) // "PACK", version, number of objects
	n, err := io.ReadFull(in.Pack, head)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF): // git reports a pack that is too short
		return fmt.Errorf("read pack: %w", err)
	case err == nil && string(head[:4]) == "PACK" && binary.BigEndian.Uint32(head[8:]) == 0:
		_, err := io.Copy(io.Discard, io.LimitReader(in.Pack, 1<<16)) // drain the checksum, so that the writer does not fail
		return err
	}
	q.config = slices.Concat(fsyncArgs, q.config)
	run, args := r.runnerFor(q, r.inherit), []string{"index-pack", "--stdin", "--fix-thin", "--strict"}
	res, err := proc.Run(ctx, proc.Command{
		Argv: slices.Concat([]string{"git"}, r.globalArgs(q), args),
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

// movePack moves the files of a pack to another directory on the same file system.
func movePack(from, to string) (err error) {
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(idxRank(a.Name()), idxRank(b.Name())) })
	if err := os.MkdirAll(to, 0o777); err != nil { // a repository without packs may lack it
		return err
	}
	var moved []string
	defer func() {
		if err == nil || slices.ContainsFunc(moved, func(path string) bool { return idxRank(path) == 1 }) {
			return // with its .idx the pack is visible, and another git may rely on it
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
		if _, err := os.Lstat(target); err == nil { // the name is a hash of the content
			same, err := sameFileContent(source, target)
			if err != nil {
				return err
			}
			if !same && !isDerivedPackFile(e.Name()) {
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

// idxRank sorts the .idx of a pack after its other files.
func idxRank(name string) int {
	if strings.HasSuffix(name, ".idx") {
		return 1
	}
	return 0
}

// isDerivedPackFile reports whether a file is computed from the .pack. Such files of the same pack may differ in
// their format version.
func isDerivedPackFile(name string) bool { return !strings.HasSuffix(name, ".pack") }

func sameFileContent(a, b string) (bool, error) {
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

// removeStaleRefLock removes the lock file of a ref that a killed git left. The caller holds the repository lock, so
// that it belongs to no live process of ours; a running git of the user is given time to finish.
func (r *Repo) removeStaleRefLock(ctx context.Context, ref string) error {
	path := r.RefPath(ref) + lockSuffix
	seen, err := os.Lstat(path)
	if err != nil || !seen.Mode().IsRegular() {
		return nil // git reports an unusual lock itself
	}
	gone := func() bool {
		now, err := os.Lstat(path)
		return err != nil || !os.SameFile(seen, now)
	}
	if err := r.lockWait.until(ctx, gone); err != nil || gone() {
		return err
	}
	if err := r.removeLockIfIdle(path, seen); err != nil && !gone() {
		return err
	}
	return nil
}

// moveReceivedRef moves the ref of the request, or returns a *RefMovedError.
func (r *Repo) moveReceivedRef(ctx context.Context, in ReceiveRequest) error {
	old := cmp.Or(in.Old, strings.Repeat("0", len(in.New)))
	if err := r.removeStaleRefLock(ctx, in.Ref); err != nil {
		return err
	}
	err := r.MoveRef(ctx, in.Ref, in.New, old, cmp.Or(in.Reason, "taken in"))
	if err == nil {
		return r.SyncRef(in.Ref)
	}
	if !ChangedNothing(err) {
		return err
	}
	found, lookErr := r.Lookup(ctx, in.Ref)
	if lookErr != nil || found[0].OID == in.Old {
		return errors.Join(err, lookErr)
	}
	return &RefMovedError{Ref: in.Ref, Want: in.Old, Have: found[0].OID}
}
