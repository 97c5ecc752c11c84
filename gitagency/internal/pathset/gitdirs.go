package pathset

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// leaveOutGitDirs restores the base in all directories that git could take for git directories, such as bare repositories, and names
// those that the sandbox has changed. A landing must not change their configuration and hooks.
func (u *upperReader) leaveOutGitDirs(r *core.Repository, id string, paths []store.PathMeta, base Tree) (err error) {
	f := gitDirFinder{tree: u.tree, base: base, baseDirs: u.dirs, known: map[string]bool{}}
	defer func() { err = errors.Join(err, f.close()) }()
	for _, p := range paths {
		if err := f.open(p.Path, UpperDir(r, id, p.Path)); err != nil {
			return err
		}
	}
	dirs := map[string]bool{}
	for _, p := range (Work{Base: base, Tree: u.tree}).Changed() {
		for at := path.Dir(p); at != "."; at = path.Dir(at) {
			if f.isGitDir(at) {
				dirs[at] = true
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if u.restore(dir, base) {
			u.leftOut = append(u.leftOut, LeftOut{dir, LeftOutGit})
		}
	}
	return nil
}

// gitDirFinder finds git directories in the directories of a sandbox: in the originals, in the base and in the changes together, so that
// none is missed that a landing would complete.
type gitDirFinder struct {
	layers     [][]*beneath.Dir // original and upper directory of each directory, as far as they exist
	tree, base Tree
	baseDirs   map[string]bool
	known      map[string]bool // results, by directory
}

// open opens the layers of the next directory.
func (f *gitDirFinder) open(dirs ...string) error {
	var layers []*beneath.Dir
	for _, path := range dirs {
		dir, err := beneath.OpenDeep(path)
		if err == nil {
			layers = append(layers, dir)
		} else if !beneath.IsGone(err) {
			return err
		}
	}
	f.layers = append(f.layers, layers)
	return nil
}

func (f *gitDirFinder) close() error {
	var errs []error
	for _, layers := range f.layers {
		for _, dir := range layers {
			errs = append(errs, dir.Close())
		}
	}
	return errors.Join(errs...)
}

// isGitDir reports whether a directory has the files by which git recognises a git directory.
func (f *gitDirFinder) isGitDir(dir string) bool {
	is, known := f.known[dir]
	if !known {
		is = f.has(dir+"/HEAD") && (f.has(dir+"/commondir") || f.has(dir+"/objects") && (f.has(dir+"/refs") || f.has(dir+"/reftable") || f.has(dir+"/packed-refs")))
		f.known[dir] = is
	}
	return is
}

// has reports whether there is anything at a path, in any layer. Only a whiteout does not count.
func (f *gitDirFinder) has(at string) bool {
	if _, leaf := f.tree[at]; leaf || f.baseDirs[at] {
		return true
	}
	if _, leaf := f.base[at]; leaf {
		return true
	}
	n, in, err := split(at)
	if err != nil || n >= len(f.layers) {
		return false
	}
	for _, dir := range f.layers[n] {
		if kind, err := dir.Kind(in); err == nil && kind&fs.ModeCharDevice == 0 {
			return true
		}
	}
	return false
}

// restore restores a directory from the base, and reports whether anything in it was different.
func (u *upperReader) restore(dir string, base Tree) (changed bool) {
	for at := dir; at != "."; at = path.Dir(at) { // a file in the place of the directory, or of one above it
		if _, file := u.tree[at]; file {
			delete(u.tree, at)
			changed = true
		}
	}
	for p, leaf := range u.tree {
		if was, there := base[p]; strings.HasPrefix(p, dir+"/") && (!there || was != leaf) {
			delete(u.tree, p)
			changed = true
		}
	}
	for p, leaf := range base {
		if _, there := u.tree[p]; !there && strings.HasPrefix(p, dir+"/") {
			u.tree[p] = leaf
			changed = true
		}
	}
	return changed
}
