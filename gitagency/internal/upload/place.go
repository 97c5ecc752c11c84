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

// moveIntoPlace moves everything from the stage to its final path.
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
	// A directory without owner write permission could not have been moved, so these modes are set last.
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

// placeChild moves one child into a directory that exists.
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

// replaceFile replaces a file and keeps the old one in the stage. Where the kernel can exchange two files, the path
// exists at every moment: the new file is first moved to the place in the stage that is meant for the old one, and
// then the two are exchanged. A put killed between these steps has nothing to restore, because the path still exists.
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

// replaceByRename is replaceFile without exchange, by two renames. The new file starts at the place meant for the old
// one.
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

// checkReplacedFile is checkReplaceable for the file that was moved to the stage, which may have changed since the
// check.
func wantAside(old *guard.Folder, child *node) error {
	fi, err := old.Lstat(child.name)
	if err != nil {
		return err
	}
	return wantFile(child.path, fi.Mode)
}

// openOldDir opens the directory in stage/old for the replaced files of another directory, and creates it if needed.
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

// checkTargetsUnmoved makes sure that all directories that files were moved to are still at their paths. Files in a
// directory that was moved away in the meantime, maybe out of the tree, are not where they should be.
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

// keepTargetOpen keeps a directory open until the end of the put, with its own descriptor, unless too many are open.
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

// maxOpenTargets returns how many directories may stay open: at most 400, and few enough to leave descriptors for the
// rest of the process.
func mostHeld() int {
	const most, reserve = 400, 128
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 2*most+reserve {
		return most
	}
	return max(0, int(limit.Cur)-reserve) / 2
}

// openTarget opens a directory of the tree, if possible from a handle kept since files were moved there.
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
