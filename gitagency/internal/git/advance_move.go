package git

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mover moves the files of a plan between the worktree and the staging directory.
type mover struct {
	g            *stage
	tree, staged *walker // worktree, and tree/ of the staging directory
	old          int     // descriptor of old/ in the staging directory
}

func (sd *stage) mover() (*mover, error) {
	tree, err := openWalker(sd.a.Tree)
	if err != nil {
		return nil, err
	}
	staged, err := openWalker(filepath.Join(sd.dir, "tree"))
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
	return &mover{g: sd, tree: tree, staged: staged, old: old}, nil
}

func (v *mover) close() {
	v.tree.close()
	v.staged.close()
	_ = unix.Close(v.old)
}

// moveFiles carries out the plan. The error is an *OverlapsError if a path has changed since it was inspected.
func (sd *stage) move(ctx context.Context, fault func(string) error) error {
	v, err := sd.mover()
	if err != nil {
		return err
	}
	defer v.close()
	overlaps := map[string]string{}
	fail := func(name string, err error) error {
		var changed *strayError
		var blocked *blockedError
		switch {
		case errors.As(err, &changed):
			overlaps[name] = OverlapDirty
		case errors.As(err, &blocked):
			overlaps[blocked.at] = OverlapUntracked
		case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
			overlaps[name] = OverlapUntracked
		case nothingThere(err):
			overlaps[name] = OverlapDirty
		default:
			return &fs.PathError{Op: "replace", Path: filepath.Join(sd.a.Tree, name), Err: err}
		}
		return sd.repo.overlapping(ctx, sd.a, overlaps)
	}
	for i, m := range sd.plan.Moves {
		if m.Is == nil {
			if err := v.take(i, m); err != nil {
				return fail(string(m.Path), err)
			}
		}
	}
	if err := fault("taken"); err != nil {
		return err
	}
	for _, d := range sd.plan.Gone {
		if err := v.rmdir(string(d.Path)); err != nil && sd.plan.replaces(string(d.Path)) {
			return fail(string(d.Path), err)
		}
	}
	for _, d := range sd.plan.Made {
		if err := v.mkdir(string(d.Path), 0o777); err != nil {
			return fail(string(d.Path), err)
		}
	}
	for i, m := range sd.plan.Moves {
		if m.Is == nil {
			continue
		}
		if err := fault("put " + string(m.Path)); err != nil {
			return err
		}
		if err := v.put(i, m); err != nil {
			return fail(string(m.Path), err)
		}
	}
	return nil
}

// replacesDir reports whether a new file takes the place of a directory or of one of its parents.
func (p *plan) replaces(dir string) bool {
	for at := dir; at != "."; at = path.Dir(at) {
		if i, there := p.find(at); there && p.Moves[i].Is != nil {
			return true
		}
	}
	return false
}

func (p *plan) find(name string) (int, bool) {
	return slices.BinarySearchFunc(p.Moves, name, func(m move, name string) int { return strings.Compare(string(m.Path), name) })
}

// changedFileError reports a file that is not the one that was inspected.
type strayError struct{ path string }

func (e *strayError) Error() string { return e.path + " was changed meanwhile" }

// verify returns a *changedFileError if a file does not have this identity.
func (s *seal) is(dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if sealOf(&st) != *s {
		return &strayError{name}
	}
	return nil
}

func slotName(i int) string { return strconv.Itoa(i) }

// moveOut moves a file from the worktree to old/. If the moved file is not the one that was inspected, it goes back.
func (v *mover) take(i int, m move) error {
	name := string(m.Path)
	fd, err := v.tree.open(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if err := m.Was.is(fd, base); err != nil {
		return err
	}
	v.wait(name)
	if err := moveTo(fd, base, v.old, slotName(i)); err != nil {
		return err
	}
	if err := m.Was.is(v.old, slotName(i)); err != nil {
		return errors.Join(err, moveTo(v.old, slotName(i), fd, base))
	}
	return nil
}

// moveIn moves a staged file into the worktree, and the file it replaces to the staging directory.
func (v *mover) put(i int, m move) error {
	name := string(m.Path)
	fd, err := v.tree.open(path.Dir(name))
	if err != nil {
		return err
	}
	stagedIn, staged := m.staged()
	from, err := v.staged.open(stagedIn)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if m.Was == nil {
		return moveTo(from, staged, fd, base)
	}
	if err := m.Was.is(fd, base); err != nil {
		return err
	}
	if !v.g.noSwap {
		v.wait(name)
	}
	err = v.swap(from, staged, fd, base)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if err := v.take(i, m); err != nil {
			return err
		}
		return moveTo(from, staged, fd, base)
	case err != nil:
		return err
	}
	if err := m.Was.is(from, staged); err != nil {
		return errors.Join(err, v.swap(from, staged, fd, base))
	}
	return nil
}

// callBeforeMove calls the hook of a test.
func (v *mover) wait(name string) {
	if v.g.late != nil {
		v.g.late(name)
	}
}

func (v *mover) swap(fromDir int, from string, toDir int, to string) error {
	if v.g.noSwap {
		return errors.ErrUnsupported
	}
	return swap(fromDir, from, toDir, to)
}

func (v *mover) rmdir(name string) error {
	fd, err := v.tree.open(path.Dir(name))
	if err != nil {
		return err
	}
	return unix.Unlinkat(fd, path.Base(name), unix.AT_REMOVEDIR)
}

// mkdir makes a directory in the worktree; it may exist.
func (v *mover) mkdir(name string, perm uint32) error {
	fd, err := v.tree.open(path.Dir(name))
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
func (sd *stage) stillAside(ctx context.Context) error {
	v, err := sd.mover()
	if err != nil {
		return err
	}
	defer v.close()
	overlaps := map[string]string{}
	for i, m := range sd.plan.Moves {
		if m.Was == nil {
			continue
		}
		if err := v.aside(i, m, m.Was); err != nil {
			overlaps[string(m.Path)] = OverlapDirty
		}
	}
	if len(overlaps) == 0 {
		return nil
	}
	return sd.repo.overlapping(ctx, sd.a, overlaps)
}

// checkMovedOutFile verifies a file that was moved out: it is in old/, or in tree/ if it was exchanged with the new file.
func (v *mover) aside(i int, m move, what *seal) error {
	err := what.is(v.old, slotName(i))
	if err == nil || m.Is == nil || !nothingThere(err) {
		return err
	}
	dir, name := m.staged()
	from, err := v.staged.open(dir)
	if err != nil {
		return err
	}
	return what.is(from, name)
}

// linkNoReplace moves a file without replacing another, for file systems without RENAME_NOREPLACE: by link and unlink.
func linkTo(fromDir int, from string, toDir int, to string) error {
	err := unix.Linkat(fromDir, from, toDir, to, 0)
	if err == nil {
		return unix.Unlinkat(fromDir, from, 0)
	}
	if err == unix.EEXIST || nothingThere(err) {
		return err
	}
	// The file system has no hard links either: check and rename, which is not atomic.
	var st unix.Stat_t
	if err := unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}
