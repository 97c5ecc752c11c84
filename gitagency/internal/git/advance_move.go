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

// mover moves the files of a plan.
type mover struct {
	g            *stage
	tree, staged *walker
	old          int
}

func (g *stage) mover() (*mover, error) {
	tree, err := openWalker(g.a.Tree)
	if err != nil {
		return nil, err
	}
	staged, err := openWalker(filepath.Join(g.dir, "tree"))
	if err != nil {
		tree.close()
		return nil, err
	}
	old, err := unix.Open(filepath.Join(g.dir, "old"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		tree.close()
		staged.close()
		return nil, err
	}
	return &mover{g: g, tree: tree, staged: staged, old: old}, nil
}

func (v *mover) close() {
	v.tree.close()
	v.staged.close()
	_ = unix.Close(v.old)
}

// move moves everything. What is in the way since somebody looked is an *OverlapsError.
func (g *stage) move(ctx context.Context, fault func(string) error) error {
	v, err := g.mover()
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
			return &fs.PathError{Op: "replace", Path: filepath.Join(g.a.Tree, name), Err: err}
		}
		return g.repo.overlapping(ctx, g.a, overlaps)
	}
	for i, m := range g.plan.Moves {
		if m.Is == nil {
			if err := v.take(i, m); err != nil {
				return fail(string(m.Path), err)
			}
		}
	}
	if err := fault("taken"); err != nil {
		return err
	}
	for _, d := range g.plan.Gone {
		if err := v.rmdir(string(d.Path)); err != nil && g.plan.replaces(string(d.Path)) {
			return fail(string(d.Path), err)
		}
	}
	for _, d := range g.plan.Made {
		if err := v.mkdir(string(d.Path), 0o777); err != nil {
			return fail(string(d.Path), err)
		}
	}
	for i, m := range g.plan.Moves {
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

// replaces reports whether a file comes in the place of a directory, or of one that it is in.
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

// strayError is a file that is not the one that was seen.
type strayError struct{ path string }

func (e *strayError) Error() string { return e.path + " was changed meanwhile" }

// is makes sure that a file is the one that was sealed.
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

// take moves a file out of the tree. What turns out to be another goes back.
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

// put moves a new file into the tree, and what was in its place out of it.
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

// mkdir makes a directory; one that is there is fine.
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

// stillAside makes sure that nobody has written to a file that went, as who had it open can have: that is the last moment
// at which it can come back.
func (g *stage) stillAside(ctx context.Context) error {
	v, err := g.mover()
	if err != nil {
		return err
	}
	defer v.close()
	overlaps := map[string]string{}
	for i, m := range g.plan.Moves {
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
	return g.repo.overlapping(ctx, g.a, overlaps)
}

// aside makes sure that a file is where those are that went.
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

// linkTo moves a file to where nothing is, where the kernel cannot be told not to replace anything.
func linkTo(fromDir int, from string, toDir int, to string) error {
	err := unix.Linkat(fromDir, from, toDir, to, 0)
	if err == nil {
		return unix.Unlinkat(fromDir, from, 0)
	}
	if err == unix.EEXIST || nothingThere(err) {
		return err
	}
	// It has no links either.
	var st unix.Stat_t
	if err := unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}
