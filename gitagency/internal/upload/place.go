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
func (p *putOp) moveIntoPlace(ctx context.Context, tx *undo.Tx) error {
	err := p.batch.walkExisting(p.top, func(n *node, at *guard.DirHandle, child *node, there *guard.Info) error {
		if there != nil && child.isDir {
			return nil
		}
		return tx.Step(ctx, "place "+child.path, func() error { return p.placeChild(n, at, child, there) })
	})
	if err != nil {
		return err
	}
	// A directory without owner write permission could not have been moved, so these modes are set last.
	for i := len(p.created) - 1; i >= 0; i-- {
		if n := p.created[i]; n.ownerRestricted() {
			if err := p.setFinalMode(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *putOp) setFinalMode(n *node) error {
	at, err := p.top.OpenPath(n.path)
	if err != nil {
		return err
	}
	return errors.Join(at.Chmod(n.perm()), at.Close())
}

// placeChild moves one child into a directory that exists.
func (p *putOp) placeChild(n *node, at *guard.DirHandle, child *node, there *guard.Info) error {
	if err := p.keepTargetOpen(at); err != nil {
		return err
	}
	if _, known := p.touched[at.Path]; !known {
		fi, err := at.Stat()
		if err != nil {
			return err
		}
		p.touched[at.Path] = identify(fi)
	}
	fresh, err := p.newDir.OpenPath(n.path)
	if err != nil {
		return err
	}
	if there == nil {
		if err := errors.Join(fresh.MoveNoReplace(child.name, at), fresh.Close()); err != nil {
			return withPath("put", child.path, err)
		}
		return nil
	}
	old, err := p.openOldDir(n.path)
	if err == nil {
		err = errors.Join(replaceFile(fresh, old, at, child, there), old.Close())
	}
	return errors.Join(err, fresh.Close())
}

// replaceFile replaces a file and keeps the old one in the stage. Where the kernel can exchange two files, the path
// exists at every moment: the new file is first moved to the place in the stage that is meant for the old one, and
// then the two are exchanged. A put killed between these steps has nothing to restore, because the path still exists.
func replaceFile(fresh, old, at *guard.DirHandle, child *node, there *guard.Info) error {
	if err := checkReplaceable(child.path, there.Mode); err != nil {
		return err
	}
	if err := fresh.MoveNoReplace(child.name, old); err != nil {
		return withPath("put", child.path, err)
	}
	err := at.Exchange(child.name, old)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return replaceByRename(fresh, old, at, child)
	}
	if err != nil {
		return errors.Join(withPath("replace", child.path, err), old.Move(child.name, fresh))
	}
	if err := checkReplacedFile(old, child); err != nil {
		return errors.Join(err, at.Exchange(child.name, old), old.Move(child.name, fresh))
	}
	return nil
}

// replaceByRename is replaceFile without exchange, by two renames. The new file starts at the place meant for the old
// one.
func replaceByRename(fresh, old, at *guard.DirHandle, child *node) error {
	err := old.Move(child.name, fresh)
	if err == nil {
		err = at.Move(child.name, old)
	}
	if err != nil {
		return withPath("replace", child.path, err)
	}
	if err := checkReplacedFile(old, child); err != nil {
		return errors.Join(err, old.MoveNoReplace(child.name, at))
	}
	if err := fresh.MoveNoReplace(child.name, at); err != nil {
		return withPath("put", child.path, err)
	}
	return nil
}

// checkReplacedFile is checkReplaceable for the file that was moved to the stage, which may have changed since the
// check.
func checkReplacedFile(old *guard.DirHandle, child *node) error {
	fi, err := old.Lstat(child.name)
	if err != nil {
		return err
	}
	return checkReplaceable(child.path, fi.Mode)
}

// openOldDir opens the directory in stage/old for the replaced files of another directory, and creates it if needed.
func (p *putOp) openOldDir(dir string) (*guard.DirHandle, error) {
	old, err := p.oldDir.OpenPath(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	above, err := p.openOldDir(path.Dir(dir))
	if err != nil {
		return nil, err
	}
	old, err = above.Mkdir(path.Base(dir))
	return old, errors.Join(err, above.Close())
}

// checkTargetsUnmoved makes sure that all directories that files were moved to are still at their paths. Files in a
// directory that was moved away in the meantime, maybe out of the tree, are not where they should be.
func (p *putOp) checkTargetsUnmoved() error {
	c := cursor{top: p.top, openPath: (*guard.DirHandle).OpenPath}
	for _, dir := range slices.Sorted(maps.Keys(p.touched)) {
		at, err := c.open(dir)
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
func (p *putOp) keepTargetOpen(f *guard.DirHandle) error {
	if p.openTargets[f.Path] != nil || len(p.openTargets) >= maxOpenTargets() {
		return nil
	}
	own, err := f.OpenPath(".")
	if err != nil {
		return err
	}
	if p.openTargets == nil {
		p.openTargets = map[string]*guard.DirHandle{}
	}
	p.openTargets[f.Path] = own
	return nil
}

// maxOpenTargets returns how many directories may stay open: at most 400, and few enough to leave descriptors for the
// rest of the process.
func maxOpenTargets() int {
	const most, reserve = 400, 128
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 2*most+reserve {
		return most
	}
	return max(0, int(limit.Cur)-reserve) / 2
}

// openTarget opens a directory of the tree, if possible from a handle kept since files were moved there.
func (p *putOp) openTarget(dir string) (*guard.DirHandle, error) {
	for up := dir; up != "."; up = path.Dir(up) {
		if held := p.openTargets[up]; held != nil {
			if up == dir {
				return held.OpenPath(".")
			}
			return held.OpenPath(strings.TrimPrefix(dir, up+"/"))
		}
	}
	return p.top.OpenPath(dir)
}
