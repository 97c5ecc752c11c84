// Package transport moves objects between repositories: it receives an untrusted pack into a quarantine, and pushes to
// remotes. It must not move a ref before the objects behind it are checked and durable.
package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
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
	LeaveRef bool     // the ref does not move: Published makes another reference to New
	Reason   string   // message of the reflog entry; git requires one, so there is a default

	// Lock takes the repository lock for the steps that change the repository; nil where the caller holds it.
	Lock func(context.Context) (repo *git.Repo, unlock func(), err error)

	// Stored, when not nil, is called when the objects are in the repository, before the ref moves, with the lock held. It makes other
	// references to them.
	Stored func(*git.Repo, Checked) error

	// Published, when not nil, is called after the ref has moved, before the lock is released.
	Published func(*git.Repo) error
}

// Checked is what the check of received objects has found.
type Checked struct {
	LooseBlobs []string // those of ReceiveRequest.Blobs that the received commits do not add
	Descends   bool     // New descends from Old; false where that is not known
}

// Receive adds commits from an untrusted source to the repository and moves one ref to them, all or nothing. Calls for
// the same ref must be serialized. All that takes time is done without the repository lock, and within r.ReadLimits; a
// pack that needs more is refused with a *readlimit.ExceededError.
//
//  1. Delete the quarantine directories that killed processes left, and create a new one.
//  2. git index-pack writes the pack into quarantine, and hashes and checks every object in it. No other process sees it.
//  3. Check that all needed objects exist: in the quarantine, or in the repository before.
//  4. Take the lock. Where objects were removed from the repository since 3, as by git gc, go back to 3.
//  5. Move the pack to the repository's objects, with a .keep file until the end of 6. Its .idx goes last: without it git does not see
//     the pack.
//  6. Move the ref, unless it was moved meanwhile.
//
// A process killed in 1 to 4 leaves the quarantine; in 5, the quarantine and a file that git ignores, or a complete
// pack without references, and a .keep file that the next call removes. Such a pack also stays where the ref was moved between 3 and 6: once it is visible,
// another git may rely on it.
func Receive(ctx context.Context, r *git.Repo, in ReceiveRequest) (err error) {
	if err := in.validate(); err != nil {
		return err
	}
	quarantine, err := openQuarantine(ctx, r, in.Ref, object.FormatOf(in.New))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, quarantine.remove()) }()
	if err := indexPack(ctx, r, quarantine, in); err != nil {
		return err
	}
	objects := filepath.Join(r.CommonDir, "objects")
	const unlockedChecks = 3 // after so many the next one is done with the lock held, so that it is the last
	for check := 1; ; check++ {
		before, err := listStored(objects)
		if err != nil {
			return err
		}
		checked, err := checkComplete(ctx, r, quarantine.options(r), in)
		if err != nil {
			return err
		}
		done, err := in.publish(ctx, r, quarantine, checked, func(locked *git.Repo) (current bool, err error) {
			now, err := listStored(objects)
			switch {
			case err != nil || now.hasAllOf(before):
				return true, err
			case check < unlockedChecks:
				return false, nil
			}
			_, err = checkComplete(ctx, locked, quarantine.options(r), in)
			return true, err
		})
		if done || err != nil {
			return err
		}
	}
}

// publish moves the checked pack and the ref with the repository lock held. It does nothing and returns false if
// isCurrent says that the check has to be repeated.
func (in ReceiveRequest) publish(ctx context.Context, r *git.Repo, quarantine *quarantine, checked Checked, isCurrent func(*git.Repo) (bool, error)) (done bool, err error) {
	if in.Lock != nil {
		var unlock func()
		if r, unlock, err = in.Lock(ctx); err != nil {
			return false, err
		}
		defer unlock()
	}
	if current, err := isCurrent(r); err != nil || !current {
		return false, err
	}
	from, to := filepath.Join(quarantine.dir, "pack"), filepath.Join(r.CommonDir, "objects", "pack")
	release, err := keepPacks(from, to)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := movePack(from, to); err != nil {
		return false, err
	}
	if in.Stored != nil {
		if err := in.Stored(r, checked); err != nil {
			return false, err
		}
	}
	if !in.LeaveRef {
		if err := moveReceivedRef(ctx, r, in); err != nil {
			return false, err
		}
	}
	if in.Published != nil {
		return true, in.Published(r)
	}
	return true, nil
}

// validate checks the ids and the ref name of a request.
func (in ReceiveRequest) validate() error {
	oids := slices.Concat([]string{in.New, cmp.Or(in.Old, in.New)}, in.Blobs)
	if i := slices.IndexFunc(oids, func(oid string) bool {
		return !object.IsOID(oid) || len(oid) != len(in.New) || strings.Trim(oid, "0") == ""
	}); i >= 0 {
		return fmt.Errorf("not an object id: %q", oids[i])
	}
	if !object.IsValidRef(in.Ref) {
		return fmt.Errorf("not a valid ref name: %q", in.Ref)
	}
	return nil
}

// movePack moves the files of a pack to another directory.
func movePack(from, to string) (err error) {
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(idxRank(a.Name()), idxRank(b.Name())) })
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
			return fmt.Errorf("unexpected file from git index-pack: %q", e.Name())
		}
		if _, err := os.Lstat(target); err == nil { // the name is a hash of the content
			same, err := sameFileContent(source, target)
			if err != nil {
				return err
			}
			if !same && !isDerivedPackFile(e.Name()) {
				return fmt.Errorf("a pack of the same name and other content exists: %s", target)
			}
			continue
		}
		if err := moveFile(source, target); err != nil {
			return err
		}
		moved = append(moved, target)
	}
	return durable.SyncDir(to)
}

// moveFile moves a file of a pack, to another file system too: the directory of packs may be a symbolic link.
func moveFile(source, target string) error {
	if err := os.Rename(source, target); !errors.Is(err, syscall.EXDEV) {
		return err
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	fi, err := from.Stat()
	if err != nil {
		return err
	}
	copied, err := os.CreateTemp(filepath.Dir(target), "tmp_pack_*") // a name that git gc removes
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, from)
	if err == nil {
		err = copied.Chmod(fi.Mode().Perm())
	}
	if err == nil {
		err = copied.Sync()
	}
	if err = errors.Join(err, copied.Close()); err == nil {
		err = os.Rename(copied.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(copied.Name()))
	}
	return os.Remove(source)
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

// moveReceivedRef moves the ref of the request, or returns a *git.RefMovedError.
func moveReceivedRef(ctx context.Context, r *git.Repo, in ReceiveRequest) error {
	if in.New == in.Old { // only blobs are new: a git that is killed here would leave a lock file for nothing
		at, err := r.Tip(ctx, in.Ref)
		if err == nil && at != in.Old {
			err = &git.RefMovedError{Ref: in.Ref, Want: in.Old, Have: at}
		}
		return err
	}
	old := cmp.Or(in.Old, strings.Repeat("0", len(in.New)))
	if err := repair.RemoveAbandonedLock(ctx, r, r.RefPath(in.Ref)+index.LockSuffix); err != nil {
		return err
	}
	err := r.MoveRef(ctx, in.Ref, in.New, old, cmp.Or(in.Reason, "agency: receive"))
	if err == nil {
		return r.SyncRef(in.Ref)
	}
	if !git.ChangedNothing(err) {
		return err
	}
	found, lookErr := r.Lookup(ctx, in.Ref)
	if lookErr != nil || found[0].OID == in.Old {
		return errors.Join(err, lookErr)
	}
	return &git.RefMovedError{Ref: in.Ref, Want: in.Old, Have: found[0].OID}
}
