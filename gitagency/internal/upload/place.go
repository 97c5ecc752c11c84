package upload

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// place moves everything from the stage to where it belongs.
func (p *putting) place(ctx context.Context, tx *undo.Tx) error {
	err := p.batch.existing(p.top, func(n *node, at *guard.Folder, child *node, there *guard.Info) error {
		if there != nil && child.dir {
			return nil
		}
		return tx.Step(ctx, "place "+child.path, func() error { return p.placeOne(n, at, child, there) })
	})
	if err != nil {
		return err
	}
	// A directory that its owner may not write in could not have been moved.
	for i := len(p.made) - 1; i >= 0; i-- {
		if n := p.made[i]; n.narrow() {
			if err := p.chmod(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *putting) chmod(n *node) error {
	at, err := p.top.Find(n.path)
	if err != nil {
		return err
	}
	return errors.Join(at.Chmod(n.perm()), at.Close())
}

// placeOne moves a child of a directory that is there already.
func (p *putting) placeOne(n *node, at *guard.Folder, child *node, there *guard.Info) error {
	if err := p.hold(at); err != nil {
		return err
	}
	if _, known := p.touched[at.Path]; !known {
		fi, err := at.Stat()
		if err != nil {
			return err
		}
		p.touched[at.Path] = identify(fi)
	}
	fresh, err := p.fresh.Find(n.path)
	if err != nil {
		return err
	}
	if there == nil {
		if err := errors.Join(fresh.MoveNew(child.name, at), fresh.Close()); err != nil {
			return about("put", child.path, err)
		}
		return nil
	}
	old, err := p.asideFor(n.path)
	if err == nil {
		err = errors.Join(replace(fresh, old, at, child, there), old.Close())
	}
	return errors.Join(err, fresh.Close())
}

// replace puts a file in the place of another, which is set aside. There is no moment without one where the kernel
// can exchange them: the new one lies where the other will be set aside, and whoever is killed before they change
// places leaves nothing to be put back, since something is there.
func replace(fresh, old, at *guard.Folder, child *node, there *guard.Info) error {
	if err := wantFile(child.path, there.Mode); err != nil {
		return err
	}
	if err := fresh.MoveNew(child.name, old); err != nil {
		return about("put", child.path, err)
	}
	err := at.Exchange(child.name, old)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return replaceSlowly(fresh, old, at, child)
	}
	if err != nil {
		return errors.Join(about("replace", child.path, err), old.Move(child.name, fresh))
	}
	if err := wantAside(old, child); err != nil {
		return errors.Join(err, at.Exchange(child.name, old), old.Move(child.name, fresh))
	}
	return nil
}

// replaceSlowly is replace from where the new one lies aside, by one move after the other.
func replaceSlowly(fresh, old, at *guard.Folder, child *node) error {
	err := old.Move(child.name, fresh)
	if err == nil {
		err = at.Move(child.name, old)
	}
	if err != nil {
		return about("replace", child.path, err)
	}
	if err := wantAside(old, child); err != nil {
		return errors.Join(err, old.MoveNew(child.name, at))
	}
	if err := fresh.MoveNew(child.name, at); err != nil {
		return about("put", child.path, err)
	}
	return nil
}

// wantAside is wantFile for what was set aside: it may be something else by now than when it was looked at.
func wantAside(old *guard.Folder, child *node) error {
	fi, err := old.Lstat(child.name)
	if err != nil {
		return err
	}
	return wantFile(child.path, fi.Mode)
}

// asideFor opens the directory for what is replaced in another, and makes it if need be.
func (p *putting) asideFor(dir string) (*guard.Folder, error) {
	old, err := p.aside.Find(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	above, err := p.asideFor(path.Dir(dir))
	if err != nil {
		return nil, err
	}
	old, err = above.Make(path.Base(dir))
	return old, errors.Join(err, above.Close())
}

// settled makes sure that every directory that something was moved to is still where it was: what is in one that was
// moved away meanwhile, maybe out of the tree, has not been put where it should be.
func (p *putting) settled() error {
	c := cursor{top: p.top, find: (*guard.Folder).Find}
	for _, dir := range slices.Sorted(maps.Keys(p.touched)) {
		at, err := c.to(dir)
		var fi guard.Info
		if err == nil {
			fi, err = at.Stat()
		}
		if err != nil || identify(fi) != p.touched[dir] {
			return errors.Join(&fs.PathError{Op: "put", Path: dir, Err: errors.New("was moved while files were put there")}, c.close())
		}
	}
	return c.close()
}

// hold keeps a directory open until the end, by a descriptor of its own, unless there are very many already.
func (p *putting) hold(f *guard.Folder) error {
	if p.held[f.Path] != nil || len(p.held) >= mostHeld() {
		return nil
	}
	own, err := f.Find(".")
	if err != nil {
		return err
	}
	if p.held == nil {
		p.held = map[string]*guard.Folder{}
	}
	p.held[f.Path] = own
	return nil
}

// mostHeld is how many directories may stay open: as many as leave enough for everything else that is done
// in this process, and at most some hundred.
func mostHeld() int {
	const most, reserve = 400, 128
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 2*most+reserve {
		return most
	}
	return max(0, int(limit.Cur)-reserve) / 2
}

// find opens a directory of the tree, if need be from where it was when something was moved there.
func (p *putting) find(dir string) (*guard.Folder, error) {
	for up := dir; up != "."; up = path.Dir(up) {
		if held := p.held[up]; held != nil {
			if up == dir {
				return held.Find(".")
			}
			return held.Find(strings.TrimPrefix(dir, up+"/"))
		}
	}
	return p.top.Find(dir)
}
