package git

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// undo puts everything back that was moved, from whatever state somebody who was killed has left. What somebody else has
// written meanwhile stays, and is reported by a *StrandedError in the end.
func (g *stage) undo(ctx context.Context) error {
	v, err := g.mover()
	if err != nil {
		return err
	}
	defer v.close()
	u := &undoing{mover: v, ctx: ctx, stranded: &StrandedError{Tree: g.a.Tree}}
	for i, m := range slices.Backward(g.plan.Moves) {
		if m.Is != nil {
			if err := u.back(i, m); err != nil {
				return err
			}
		}
	}
	for _, d := range slices.Backward(g.plan.Made) {
		_ = v.rmdir(string(d.Path)) // one in which somebody has put something stays
	}
	for _, d := range slices.Backward(g.plan.Gone) {
		_ = u.remake(d) // if it cannot be, the files that were in there say so
	}
	for i, m := range g.plan.Moves {
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

// spare leaves to somebody who has moved the branch what is in the index by now: it may be in a commit. All else goes back
// to what the index has, which is right wherever the branch is.
func (g *stage) spare(ctx context.Context) error {
	s, err := g.repo.take(ctx, g.a)
	if err != nil {
		return err
	}
	g.theirs = s.overlaps
	return nil
}

type undoing struct {
	*mover
	ctx      context.Context
	stranded *StrandedError
	judge    *judge
}

// remake makes a directory that went.
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

// What a file turns out to be.
type standing uint8

const (
	isNothing standing = iota
	isOld
	isNew
	isOther
)

// at says what stands at a path of the tree; dir is the directory that it is in, -1 when that is not there.
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

// aside says where the file is that went from a path: its directory and name, -1 when it did not go.
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

// back undoes a put.
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
	case dir < 0: // it did not go
		return nil
	case what == isNothing && fd >= 0:
		return moveTo(dir, name, fd, base)
	case what == isNew:
		err := u.swap(dir, name, fd, base)
		if errors.Is(err, errors.ErrUnsupported) {
			err = unix.Renameat(dir, name, fd, base) // of the new one nothing is needed any more
		}
		return err
	case what == isOld: // the link of it that is aside
		return nil
	}
	return u.strand(fd, dir, name, m)
}

// unput takes a file away that was not there before.
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
	case what == isNew && here: // both are one file
		return unix.Unlinkat(fd, base, 0)
	case what == isNew:
		return moveTo(fd, base, from, staged)
	case what == isOther && !here:
		u.stranded.Paths = append(u.stranded.Paths, string(m.Path))
	}
	return nil
}

// bring undoes a take.
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

// strand leaves a path to whoever has written there. What was there before is in the repository, unless somebody has
// written to it since it went: then it is put beside.
func (u *undoing) strand(fd, dir int, name string, m move) error {
	u.stranded.Paths = append(u.stranded.Paths, string(m.Path))
	if fd < 0 || m.Was.is(dir, name) == nil {
		return nil
	}
	return moveTo(dir, name, fd, path.Base(string(m.Path))+draftSuffix)
}
