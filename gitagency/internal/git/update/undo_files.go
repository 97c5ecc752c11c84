package update

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"golang.org/x/sys/unix"
)

// undoMoves moves all files back, whatever state a killed process has left them in. Files that another process has written
// meanwhile stay, and are reported by a *ConcurrentChangeError at the end.
func (sd *stagingDir) undoMoves(ctx context.Context) error {
	v, err := sd.newMover()
	if err != nil {
		return err
	}
	defer v.close()
	u := &undoer{mover: v, ctx: ctx, changed: &ConcurrentChangeError{Worktree: sd.spec.Worktree}}
	for i, m := range slices.Backward(sd.plan.Moves) {
		if m.New != nil {
			if err := u.undoMoveIn(i, m); err != nil {
				return err
			}
		}
	}
	for _, d := range slices.Backward(sd.plan.MakeDirs) {
		_ = v.rmdir(string(d.Path)) // a directory with other files in it stays
	}
	for _, d := range slices.Backward(sd.plan.RemoveDirs) {
		_ = u.remakeDir(d) // if that fails, moving back its files reports it
	}
	for i, m := range sd.plan.Moves {
		if m.New == nil {
			if err := u.undoMoveOut(i, m); err != nil {
				return err
			}
		}
	}
	if len(u.changed.Paths) > 0 {
		slices.Sort(u.changed.Paths)
		return u.changed
	}
	return nil
}

// excludeStagedPaths excludes from undo the paths whose index entry is not that of the old commit: after another process
// has moved the branch, they may be committed. All other files go back to what the index has, which is right wherever the
// branch is.
func (sd *stagingDir) excludeStagedPaths(ctx context.Context) error {
	s, err := loadCheckout(ctx, sd.repo, sd.spec)
	if err != nil {
		return err
	}
	sd.leaveAsIs = s.overlaps
	return nil
}

// undoer moves the files of a plan back.
type undoer struct {
	*mover
	ctx        context.Context
	changed    *ConcurrentChangeError
	classifier *classifier
}

// remakeDir makes a removed directory again, with its permissions.
func (u *undoer) remakeDir(d dirRecord) error {
	fd, err := u.worktree.open(path.Dir(string(d.Path)))
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
type fileState uint8

const (
	stateAbsent fileState = iota
	stateOld
	stateNew
	stateOther
)

// stateAt returns the state of a path in the worktree, and a descriptor of its directory; -1: the directory is missing.
func (u *undoer) stateAt(m fileMove) (dir int, what fileState, err error) {
	name := string(m.Path)
	fd, err := u.worktree.open(path.Dir(name))
	if err != nil {
		if git.IsNotExist(err) || errors.As(err, new(*notDirError)) {
			return -1, stateAbsent, nil
		}
		return -1, stateOther, err
	}
	if u.staging.leaveAsIs[name] != "" {
		return fd, stateOther, nil
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err != nil && git.IsNotExist(err):
		return fd, stateAbsent, nil
	case err != nil:
		return fd, stateOther, err
	}
	now := fileIdentityOf(&st)
	switch {
	case m.Old != nil && now == *m.Old:
		return fd, stateOld, nil
	case m.New != nil && now == *m.New:
		return fd, stateNew, nil
	case !u.staging.mayBeTorn:
		return fd, stateOther, nil
	}
	if u.classifier == nil {
		if u.classifier, err = u.staging.newClassifier(u.ctx); err != nil {
			return fd, stateOther, err
		}
	}
	return fd, u.classifier.classify(filepath.Join(u.staging.spec.Worktree, name), name, m.New != nil && m.New.Ino == now.Ino), nil
}

// findMovedOut returns the directory descriptor and name of the old file in the staging directory; -1: it was not moved.
func (u *undoer) findMovedOut(i int, m fileMove) (dir int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(u.oldDir, slotName(i), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return u.oldDir, slotName(i)
	}
	if m.New == nil {
		return -1, ""
	}
	in, staged := m.stagedPath()
	from, err := u.staged.open(in)
	if err != nil || unix.Fstatat(from, staged, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Ino == m.New.Ino && uint32(st.Mode)&unix.S_IFMT == m.New.Mode&unix.S_IFMT {
		return -1, ""
	}
	return from, staged
}

// undoMoveIn undoes moveIn.
func (u *undoer) undoMoveIn(i int, m fileMove) error {
	fd, what, err := u.stateAt(m)
	if err != nil {
		return err
	}
	base := path.Base(string(m.Path))
	if m.Old == nil {
		return u.removeNewFile(fd, what, m)
	}
	dir, name := u.findMovedOut(i, m)
	switch {
	case dir < 0: // not moved out
		return nil
	case what == stateAbsent && fd >= 0:
		return moveNoReplace(dir, name, fd, base)
	case what == stateNew:
		err := u.exchange(dir, name, fd, base)
		if errors.Is(err, errors.ErrUnsupported) {
			err = unix.Renameat(dir, name, fd, base) // the new file is not needed any more
		}
		return err
	case what == stateOld: // linkNoReplace was interrupted: the moved-out name is a second link of the file
		return nil
	}
	return u.leaveChangedFile(fd, dir, name, m)
}

// removeNewFile moves an added file back to the staging directory.
func (u *undoer) removeNewFile(fd int, what fileState, m fileMove) error {
	base := path.Base(string(m.Path))
	in, staged := m.stagedPath()
	from, err := u.staged.open(in)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	here := unix.Fstatat(from, staged, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	switch {
	case what == stateNew && here: // two links of one file
		return unix.Unlinkat(fd, base, 0)
	case what == stateNew:
		return moveNoReplace(fd, base, from, staged)
	case what == stateOther && !here:
		u.changed.Paths = append(u.changed.Paths, string(m.Path))
	}
	return nil
}

// undoMoveOut undoes moveOut.
func (u *undoer) undoMoveOut(i int, m fileMove) error {
	dir, name := u.findMovedOut(i, m)
	if dir < 0 {
		return nil
	}
	fd, what, err := u.stateAt(m)
	if err != nil {
		return err
	}
	switch {
	case what == stateAbsent && fd >= 0:
		return moveNoReplace(dir, name, fd, path.Base(string(m.Path)))
	case what == stateOld:
		return nil
	}
	return u.leaveChangedFile(fd, dir, name, m)
}

// leaveChangedFile leaves a path as another process has written it. The old file is in the repository, unless it was
// written to after it had been moved out: then it is put beside the path, with DraftSuffix.
func (u *undoer) leaveChangedFile(fd, dir int, name string, m fileMove) error {
	u.changed.Paths = append(u.changed.Paths, string(m.Path))
	if fd < 0 || m.Old.verify(dir, name) == nil {
		return nil
	}
	return moveNoReplace(dir, name, fd, path.Base(string(m.Path))+index.DraftSuffix)
}
