package pathset

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Work is the state of the directories of a sandbox with its changes.
type Work struct {
	Base    Tree      // state at the start
	Tree    Tree      // state now: Base with the changes of the sandbox
	TreeID  string    // tree object of Tree
	LeftOut []LeftOut // paths that the sandbox changed and that Tree does not hold, by path
}

// Changed returns the paths in which the work differs from the state at the start, sorted.
func (w Work) Changed() (paths []string) {
	for p, leaf := range w.Tree {
		if was, there := w.Base[p]; !there || was != leaf {
			paths = append(paths, p)
		}
	}
	for p := range w.Base {
		if _, there := w.Tree[p]; !there {
			paths = append(paths, p)
		}
	}
	sort.Strings(paths)
	return paths
}

// UpperDir returns the upper directory of the overlay over a directory of a sandbox. It exists once a command has run.
func UpperDir(r *core.Repository, id, path string) string {
	return walls.OverlayOf(r.Store.WallsDir(r.ID, id), path).Upper
}

// FillChanged sets the number of changed files of sandboxes over plain directories. One whose changes cannot be read keeps none.
func FillChanged(ctx context.Context, r *core.Repository, invocations []core.Invocation) {
	for i := range invocations {
		FillChangedOfOne(ctx, r, &invocations[i])
	}
}

// FillChangedOfOne is FillChanged for one sandbox.
func FillChangedOfOne(ctx context.Context, r *core.Repository, inv *core.Invocation) {
	if inv.Broken || inv.HasEnded() || len(inv.Paths) == 0 {
		return
	}
	w, err := readWork(ctx, r, nil, inv.ID, inv.Entry.Record.PathsFields)
	if err != nil {
		r.Warn("sandbox %s: its changed files cannot be counted: %v", inv.ID, err)
		return
	}
	n := len(w.Changed())
	inv.Dirty = &n
}

// ReadWork reads the upper directories of a sandbox as data, and writes the objects of its state to repo. Commands may run meanwhile;
// then the state is not one that existed at any moment.
func ReadWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string, m store.PathsFields) (w Work, err error) {
	if w, err = readWork(ctx, r, repo, id, m); err == nil {
		w.TreeID, err = w.Tree.Write(ctx, repo, w.Base)
	}
	return w, err
}

// readAllWork is ReadWork, but restores the permissions of the owner where a command has removed them, so that no work is left out for
// that. No command runs in the sandbox.
func readAllWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string, m store.PathsFields) (Work, error) {
	w, err := ReadWork(ctx, r, repo, id, m)
	if err != nil || !slices.ContainsFunc(w.LeftOut, func(l LeftOut) bool { return l.Reason == LeftOutUnreadable }) {
		return w, err
	}
	for _, p := range m.Paths {
		if err := durable.RestoreOwnerPermissions(UpperDir(r, id, p.Path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return w, err
		}
	}
	return ReadWork(ctx, r, repo, id, m)
}

// readWork is ReadWork without the trees. Without repo it writes no blobs either.
func readWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string, m store.PathsFields) (w Work, err error) {
	if w.Base, err = ReadTree(ctx, States(r).Git, m.PathsBase); err != nil {
		return w, err
	}
	u := newUpperReader(repo, w.Base)
	for n, p := range m.Paths {
		if err := u.readUpper(ctx, n, UpperDir(r, id, p.Path)); err != nil {
			return w, err
		}
	}
	if err := u.leaveOutGitDirs(r, id, m.Paths, w.Base); err != nil {
		return w, err
	}
	if err := u.blobs.flush(ctx); err != nil {
		return w, err
	}
	sort.Slice(u.leftOut, func(i, j int) bool { return u.leftOut[i].Path < u.leftOut[j].Path })
	w.Tree, w.LeftOut = u.tree, u.leftOut
	return w, nil
}

// upperReader applies upper directories to a state.
type upperReader struct {
	scanner
	dirs map[string]bool // directories of the state at the start
}

func newUpperReader(repo *git.Repo, base Tree) *upperReader {
	u := &upperReader{scanner: scanner{blobs: newBlobWriter(repo), tree: Tree{}}, dirs: map[string]bool{}}
	for p, leaf := range base {
		u.tree[p] = leaf
		for at := path.Dir(p); at != "." && !u.dirs[at]; at = path.Dir(at) {
			u.dirs[at] = true
		}
	}
	return u
}

// readUpper applies the upper directory of the directory n, which may not exist.
func (u *upperReader) readUpper(ctx context.Context, n int, upper string) error {
	dir, err := beneath.OpenDeep(upper)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(u.readLayer(ctx, strconv.Itoa(n), dir, ".", 0), dir.Close())
}

// readLayer applies the directory called name of an upper directory; its path in the tree is at.
func (u *upperReader) readLayer(ctx context.Context, at string, dir *beneath.Dir, name string, depth int) error {
	if depth > maxDepth {
		u.leftOut = append(u.leftOut, LeftOut{at, LeftOutDeep})
		return nil
	}
	layer, err := dir.ReadLayer(name)
	if err != nil {
		return u.leave(at, err)
	}
	if err := u.count(ctx, at, len(layer.Entries)+len(layer.Whiteouts), depth); err != nil {
		return err
	}
	if layer.IsOpaque {
		u.remove(at)
	}
	for _, gone := range layer.Whiteouts {
		u.removeNamed(at + "/" + gone)
	}
	for _, e := range layer.Entries {
		below, in := at+"/"+e.Name, path.Join(name, e.Name)
		switch {
		case isReserved(e.Name):
			u.leftOut = append(u.leftOut, LeftOut{below, LeftOutGit})
		case e.Kind.IsDir():
			delete(u.tree, below) // a file that became a directory
			err = u.readLayer(ctx, below, dir, in, depth+1)
		default:
			err = u.readFile(ctx, below, dir, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readFile applies a file or symbolic link of an upper directory. A file that cannot land leaves the state as it was.
func (u *upperReader) readFile(ctx context.Context, at string, dir *beneath.Dir, name string) error {
	before := len(u.leftOut)
	was, had := u.tree[at]
	delete(u.tree, at)
	err := u.addLeaf(ctx, at, dir, name)
	if len(u.leftOut) > before && had {
		u.tree[at] = was
	}
	if _, added := u.tree[at]; added && u.dirs[at] {
		u.removeFilesBelow(at)
	}
	return err
}

// removeNamed applies a whiteout.
func (u *upperReader) removeNamed(at string) {
	_, is := u.tree[at]
	switch {
	case isReserved(path.Base(at)):
		u.leftOut = append(u.leftOut, LeftOut{at, LeftOutGit})
	case is || u.dirs[at]:
		u.remove(at)
	default:
		u.leftOut = append(u.leftOut, LeftOut{at, LeftOutUnknown})
	}
}

// remove removes a file, or a directory with all of its files.
func (u *upperReader) remove(at string) {
	delete(u.tree, at)
	if u.dirs[at] {
		u.removeFilesBelow(at)
	}
}

func (u *upperReader) removeFilesBelow(at string) {
	for p := range u.tree {
		if strings.HasPrefix(p, at+"/") {
			delete(u.tree, p)
		}
	}
}
