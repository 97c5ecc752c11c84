package git

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// undoMoves moves all files back, whatever state a killed process has left them in. Files that another process has written
// meanwhile stay, and are reported by a *ConcurrentChangeError at the end.
func (sd *stage) undo(ctx context.Context) error {
	v, err := sd.mover()
	if err != nil {
		return err
	}
	defer v.close()
	u := &undoing{mover: v, ctx: ctx, stranded: &StrandedError{Tree: sd.a.Tree}}
	for i, m := range slices.Backward(sd.plan.Moves) {
		if m.Is != nil {
			if err := u.back(i, m); err != nil {
				return err
			}
		}
	}
	for _, d := range slices.Backward(sd.plan.Made) {
		_ = v.rmdir(string(d.Path)) // a directory with other files in it stays
	}
	for _, d := range slices.Backward(sd.plan.Gone) {
		_ = u.remake(d) // if that fails, moving back its files reports it
	}
	for i, m := range sd.plan.Moves {
		if m.Is == nil {
			if err := u.bring(i, m); err != nil {
				return err
			}
		}
	}
	if len(u.stranded.Paths) > 0 {
		slices.Sort(u.stranded.Paths)
		return u.stranded
	}
	return nil
}

// excludeStagedPaths excludes from undo the paths whose index entry is not that of the old commit: after another process
// has moved the branch, they may be committed. All other files go back to what the index has, which is right wherever the
// branch is.
func (sd *stage) spare(ctx context.Context) error {
	s, err := sd.repo.take(ctx, sd.a)
	if err != nil {
		return err
	}
	sd.theirs = s.overlaps
	return nil
}

// undoer moves the files of a plan back.
type undoing struct {
	*mover
	ctx      context.Context
	stranded *StrandedError
	judge    *judge
}

// remakeDir makes a removed directory again, with its permissions.
func (u *undoing) remake(d dir) error {
	fd, err := u.tree.open(path.Dir(string(d.Path)))
	if err != nil {
		return err
	}
	base := path.Base(string(d.Path))
	if err := unix.Mkdirat(fd, base, 0o700); err != nil {
		return err
	}
	return unix.Fchmodat(fd, base, d.Perm, 0)
}

// fileState says which version of a file is at a path.
type standing uint8

const (
	isNothing standing = iota
	isOld
	isNew
	isOther
)

// stateAt returns the state of a path in the worktree, and a descriptor of its directory; -1: the directory is missing.
func (u *undoing) at(m move) (dir int, what standing, err error) {
	name := string(m.Path)
	fd, err := u.tree.open(path.Dir(name))
	if err != nil {
		if nothingThere(err) || errors.As(err, new(*blockedError)) {
			return -1, isNothing, nil
		}
		return -1, isOther, err
	}
	if u.g.theirs[name] != "" {
		return fd, isOther, nil
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err != nil && nothingThere(err):
		return fd, isNothing, nil
	case err != nil:
		return fd, isOther, err
	}
	now := sealOf(&st)
	switch {
	case m.Was != nil && now == *m.Was:
		return fd, isOld, nil
	case m.Is != nil && now == *m.Is:
		return fd, isNew, nil
	case !u.g.torn:
		return fd, isOther, nil
	}
	if u.judge == nil {
		if u.judge, err = u.g.newJudge(u.ctx); err != nil {
			return fd, isOther, err
		}
	}
	return fd, u.judge.of(filepath.Join(u.g.a.Tree, name), name, m.Is != nil && m.Is.Ino == now.Ino), nil
}

// findMovedOut returns the directory descriptor and name of the old file in the staging directory; -1: it was not moved.
func (u *undoing) aside(i int, m move) (dir int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(u.old, slotName(i), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return u.old, slotName(i)
	}
	if m.Is == nil {
		return -1, ""
	}
	in, staged := m.staged()
	from, err := u.staged.open(in)
	if err != nil || unix.Fstatat(from, staged, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Ino == m.Is.Ino && uint32(st.Mode)&unix.S_IFMT == m.Is.Mode&unix.S_IFMT {
		return -1, ""
	}
	return from, staged
}

// undoMoveIn undoes moveIn.
func (u *undoing) back(i int, m move) error {
	fd, what, err := u.at(m)
	if err != nil {
		return err
	}
	base := path.Base(string(m.Path))
	if m.Was == nil {
		return u.unput(fd, what, m)
	}
	dir, name := u.aside(i, m)
	switch {
	case dir < 0: // not moved out
		return nil
	case what == isNothing && fd >= 0:
		return moveTo(dir, name, fd, base)
	case what == isNew:
		err := u.swap(dir, name, fd, base)
		if errors.Is(err, errors.ErrUnsupported) {
			err = unix.Renameat(dir, name, fd, base) // the new file is not needed any more
		}
		return err
	case what == isOld: // linkNoReplace was interrupted: the moved-out name is a second link of the file
		return nil
	}
	return u.strand(fd, dir, name, m)
}

// removeNewFile moves an added file back to the staging directory.
func (u *undoing) unput(fd int, what standing, m move) error {
	base := path.Base(string(m.Path))
	in, staged := m.staged()
	from, err := u.staged.open(in)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	here := unix.Fstatat(from, staged, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	switch {
	case what == isNew && here: // two links of one file
		return unix.Unlinkat(fd, base, 0)
	case what == isNew:
		return moveTo(fd, base, from, staged)
	case what == isOther && !here:
		u.stranded.Paths = append(u.stranded.Paths, string(m.Path))
	}
	return nil
}

// undoMoveOut undoes moveOut.
func (u *undoing) bring(i int, m move) error {
	dir, name := u.aside(i, m)
	if dir < 0 {
		return nil
	}
	fd, what, err := u.at(m)
	if err != nil {
		return err
	}
	switch {
	case what == isNothing && fd >= 0:
		return moveTo(dir, name, fd, path.Base(string(m.Path)))
	case what == isOld:
		return nil
	}
	return u.strand(fd, dir, name, m)
}

// leaveChangedFile leaves a path as another process has written it. The old file is in the repository, unless it was
// written to after it had been moved out: then it is put beside the path, with draftSuffix.
func (u *undoing) strand(fd, dir int, name string, m move) error {
	u.stranded.Paths = append(u.stranded.Paths, string(m.Path))
	if fd < 0 || m.Was.is(dir, name) == nil {
		return nil
	}
	return moveTo(dir, name, fd, path.Base(string(m.Path))+draftSuffix)
}
