package update

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"golang.org/x/sys/unix"
)

// mover moves the files of a plan between the worktree and the staging directory.
type mover struct {
	staging          *stagingDir
	worktree, staged *dirWalker // worktree, and tree/ of the staging directory
	oldDir           int        // descriptor of old/ in the staging directory
}

func (sd *stagingDir) newMover() (*mover, error) {
	tree, err := openDirWalker(sd.spec.Worktree)
	if err != nil {
		return nil, err
	}
	staged, err := openDirWalker(filepath.Join(sd.dir, "tree"))
	if err != nil {
		tree.close()
		return nil, err
	}
	old, err := unix.Open(filepath.Join(sd.dir, "old"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		tree.close()
		staged.close()
		return nil, err
	}
	return &mover{staging: sd, worktree: tree, staged: staged, oldDir: old}, nil
}

func (v *mover) close() {
	v.worktree.close()
	v.staged.close()
	_ = unix.Close(v.oldDir)
}

// moveFiles carries out the plan. The error is a *LocalChangesError if a path has changed since it was inspected.
func (sd *stagingDir) moveFiles(ctx context.Context, fault func(string) error) error {
	v, err := sd.newMover()
	if err != nil {
		return err
	}
	defer v.close()
	overlaps := map[string]string{}
	fail := func(name string, err error) error {
		var changed *changedFileError
		var blocked *notDirError
		switch {
		case errors.As(err, &changed):
			overlaps[name] = OverlapDirty
		case errors.As(err, &blocked):
			overlaps[blocked.name] = OverlapUntracked
		case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
			overlaps[name] = OverlapUntracked
		case git.IsNotExist(err):
			overlaps[name] = OverlapDirty
		default:
			return &fs.PathError{Op: "replace", Path: filepath.Join(sd.spec.Worktree, name), Err: err}
		}
		return newLocalChangesError(ctx, sd.repo, sd.spec, overlaps)
	}
	for i, m := range sd.plan.Moves {
		if m.New == nil {
			if err := v.moveOut(i, m); err != nil {
				return fail(string(m.Path), err)
			}
		}
	}
	if err := fault("taken"); err != nil {
		return err
	}
	for _, d := range sd.plan.RemoveDirs {
		if err := v.rmdir(string(d.Path)); err != nil && sd.plan.replacesDir(string(d.Path)) {
			return fail(string(d.Path), err)
		}
	}
	for _, d := range sd.plan.MakeDirs {
		if err := v.mkdir(string(d.Path), 0o777); err != nil {
			return fail(string(d.Path), err)
		}
	}
	for i, m := range sd.plan.Moves {
		if m.New == nil {
			continue
		}
		if err := fault("put " + string(m.Path)); err != nil {
			return err
		}
		if err := v.moveIn(i, m); err != nil {
			return fail(string(m.Path), err)
		}
	}
	return nil
}

// replacesDir reports whether a new file takes the place of a directory or of one of its parents.
func (p *plan) replacesDir(dir string) bool {
	for at := dir; at != "."; at = path.Dir(at) {
		if i, there := p.findMove(at); there && p.Moves[i].New != nil {
			return true
		}
	}
	return false
}

func (p *plan) findMove(name string) (int, bool) {
	return slices.BinarySearchFunc(p.Moves, name, func(m fileMove, name string) int { return strings.Compare(string(m.Path), name) })
}

// changedFileError reports a file that is not the one that was inspected.
type changedFileError struct{ path string }

func (e *changedFileError) Error() string { return e.path + " was changed during the update" }

// verify returns a *changedFileError if a file does not have this identity.
func (s *fileIdentity) verify(dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if fileIdentityOf(&st) != *s {
		return &changedFileError{name}
	}
	return nil
}

func slotName(i int) string { return strconv.Itoa(i) }

// moveOut moves a file from the worktree to old/. If the moved file is not the one that was inspected, it goes back.
func (v *mover) moveOut(i int, m fileMove) error {
	name := string(m.Path)
	fd, err := v.worktree.open(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if err := m.Old.verify(fd, base); err != nil {
		return err
	}
	v.callBeforeMove(name)
	if err := moveNoReplace(fd, base, v.oldDir, slotName(i)); err != nil {
		return err
	}
	if err := m.Old.verify(v.oldDir, slotName(i)); err != nil {
		return errors.Join(err, moveNoReplace(v.oldDir, slotName(i), fd, base))
	}
	return nil
}

// moveIn moves a staged file into the worktree, and the file it replaces to the staging directory.
func (v *mover) moveIn(i int, m fileMove) error {
	name := string(m.Path)
	fd, err := v.worktree.open(path.Dir(name))
	if err != nil {
		return err
	}
	stagedIn, staged := m.stagedPath()
	from, err := v.staged.open(stagedIn)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if m.Old == nil {
		return moveNoReplace(from, staged, fd, base)
	}
	if err := m.Old.verify(fd, base); err != nil {
		return err
	}
	if !v.staging.noExchange {
		v.callBeforeMove(name)
	}
	err = v.exchange(from, staged, fd, base)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if err := v.moveOut(i, m); err != nil {
			return err
		}
		return moveNoReplace(from, staged, fd, base)
	case err != nil:
		return err
	}
	if err := m.Old.verify(from, staged); err != nil {
		return errors.Join(err, v.exchange(from, staged, fd, base))
	}
	return nil
}

// callBeforeMove calls the hook of a test.
func (v *mover) callBeforeMove(name string) {
	if v.staging.beforeMove != nil {
		v.staging.beforeMove(name)
	}
}

func (v *mover) exchange(fromDir int, from string, toDir int, to string) error {
	if v.staging.noExchange {
		return errors.ErrUnsupported
	}
	return exchangeFiles(fromDir, from, toDir, to)
}

func (v *mover) rmdir(name string) error {
	fd, err := v.worktree.open(path.Dir(name))
	if err != nil {
		return err
	}
	return unix.Unlinkat(fd, path.Base(name), unix.AT_REMOVEDIR)
}

// mkdir makes a directory in the worktree; it may exist.
func (v *mover) mkdir(name string, perm uint32) error {
	fd, err := v.worktree.open(path.Dir(name))
	if err != nil {
		return err
	}
	err = unix.Mkdirat(fd, path.Base(name), perm)
	if err == unix.EEXIST {
		var st unix.Stat_t
		if unix.Fstatat(fd, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil
		}
	}
	return err
}

// checkMovedOut checks that no process has written to a replaced or removed file since, through a descriptor it had open.
// This is the last moment at which the file can still be put back.
func (sd *stagingDir) checkMovedOut(ctx context.Context) error {
	v, err := sd.newMover()
	if err != nil {
		return err
	}
	defer v.close()
	overlaps := map[string]string{}
	for i, m := range sd.plan.Moves {
		if m.Old == nil {
			continue
		}
		if err := v.checkMovedOutFile(i, m, m.Old); err != nil {
			overlaps[string(m.Path)] = OverlapDirty
		}
	}
	if len(overlaps) == 0 {
		return nil
	}
	return newLocalChangesError(ctx, sd.repo, sd.spec, overlaps)
}

// checkMovedOutFile verifies a file that was moved out: it is in old/, or in tree/ if it was exchanged with the new file.
func (v *mover) checkMovedOutFile(i int, m fileMove, what *fileIdentity) error {
	err := what.verify(v.oldDir, slotName(i))
	if err == nil || m.New == nil || !git.IsNotExist(err) {
		return err
	}
	dir, name := m.stagedPath()
	from, err := v.staged.open(dir)
	if err != nil {
		return err
	}
	return what.verify(from, name)
}

// linkNoReplace moves a file without replacing another, for file systems without RENAME_NOREPLACE: by link and unlink.
func linkNoReplace(fromDir int, from string, toDir int, to string) error {
	err := unix.Linkat(fromDir, from, toDir, to, 0)
	if err == nil {
		return unix.Unlinkat(fromDir, from, 0)
	}
	if err == unix.EEXIST || git.IsNotExist(err) {
		return err
	}
	// The file system has no hard links either: check and rename, which is not atomic.
	var st unix.Stat_t
	if err := unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}
