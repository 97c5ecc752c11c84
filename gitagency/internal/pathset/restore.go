package pathset

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Restore makes a new sandbox over the directories of one that has ended, with the same base and the changes that were kept. The name,
// primitives, limits and grants are those of the old invocation, which stays as it is.
func Restore(ctx context.Context, r *core.Repository, query string) (core.Invocation, error) {
	ended, err := r.Invocation(query)
	if err == nil {
		err = ended.Err()
	}
	if err == nil && !ended.Entry.Record.HasEnded() {
		err = &fault.NotEndedError{ID: ended.ID}
	}
	if err != nil {
		return core.Invocation{}, err
	}
	software, err := sandbox.UseRestored(ctx, r, ended.Entry.Record.Primitives)
	if err != nil {
		return core.Invocation{}, err
	}
	defer software.Close()
	plan, err := planRestore(ctx, r, *ended.Entry, software)
	if err != nil {
		return core.Invocation{}, err
	}
	plan.copies.repo = r
	defer plan.copies.close()
	for n, p := range plan.fields.Paths {
		if p.Copied == "" {
			continue
		}
		if _, err := plan.copies.add(ctx, n, p); err != nil {
			return core.Invocation{}, err
		}
	}
	if r.HasTrashArchive(ended.ID) {
		r.Warn("what the snapshot does not hold stays in %s", r.Store.TrashArchivePath(r.ID, ended.ID))
	}
	lock, err := r.HoldLock(ctx)
	if err != nil {
		return core.Invocation{}, err
	}
	defer lock.Close()
	if plan.restored, err = findKept(ctx, r, ended.ID, plan.fields); err != nil { // may have been pruned while waiting for the lock
		return core.Invocation{}, err
	}
	return plan.create(ctx, r, lock.Repo)
}

// planRestore plans the sandbox that has the changes of an ended one.
func planRestore(ctx context.Context, r *core.Repository, entry store.Entry[store.InvocationMeta], software *sandbox.RestoredSoftware) (plan startPlan, err error) {
	m := entry.Record
	remains, err := r.Store.FindRemains(r.ID, entry.ID)
	if err != nil {
		return plan, err
	}
	if m.Landing == store.Discarded && (remains.HasTree || remains.HasWithdrawn) {
		return plan, &fault.UnfinishedDiscardError{ID: entry.ID}
	}
	plan = startPlan{
		StartRequest: StartRequest{Name: m.InvocationName, Runner: m.Runner, Mode: m.Mode},
		prims:        software.Checked, limits: m.Limits, allowed: m.Allowed, fields: store.PathsFields{PathsBase: m.PathsBase},
	}
	for _, p := range m.Paths {
		now, err := resolvePath(r, p.Path)
		if err == nil && now.Path != p.Path {
			err = &fault.UnsafePathError{Path: p.Path, Why: "it leads to " + now.Path + " now"}
		}
		if err != nil {
			return plan, err
		}
		plan.fields.Paths = append(plan.fields.Paths, p)
	}
	if _, err := findKept(ctx, r, entry.ID, plan.fields); err != nil {
		return plan, err
	}
	err = checkOverlays(ctx, r, plan)
	plan.prims = software.Prims
	return plan, err
}

// keptWork is the work of an ended sandbox.
type keptWork struct{ base, tree Tree }

// findKept reads the work that the end of a sandbox has kept.
func findKept(ctx context.Context, r *core.Repository, id string, m store.PathsFields) (*keptWork, error) {
	states := States(r).Git
	base, err := states.Tip(ctx, changeset.BaseRef(id))
	if err == nil && base == "" {
		err = &fault.TrashGoneError{ID: id, Gone: changeset.BaseRef(id)}
	}
	if err != nil {
		return nil, err
	}
	all, err := snapshots.List(ctx, states, id)
	if err != nil {
		return nil, err
	}
	last := m.PathsBase
	if len(all) > 0 {
		last = all[len(all)-1].ID
	}
	k := &keptWork{}
	if k.base, err = ReadTree(ctx, states, m.PathsBase); err == nil {
		k.tree, err = ReadTree(ctx, states, last)
	}
	return k, err
}

// write writes the work to the upper directories of a new sandbox, in which nothing has run.
func (k *keptWork) write(ctx context.Context, r *core.Repository, id string, paths []store.PathMeta) (err error) {
	changed := Work{Base: k.base, Tree: k.tree}.Changed()
	if len(changed) == 0 {
		return nil
	}
	repo := States(r).Git
	cat, err := repo.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer cat.Close()
	w := upperWriter{repo: repo, cat: cat, kept: k, paths: paths, made: map[string]bool{}}
	for _, p := range paths {
		overlay := walls.OverlayOf(r.Store.WallsDir(r.ID, id), p.Path)
		w.uppers = append(w.uppers, overlay.Upper)
		if err := w.makeDir(overlay.Upper, p.Path); err != nil {
			return err
		}
		if err := os.Mkdir(overlay.Work, 0o700); err != nil { // its existence says that the upper directory is complete
			return err
		}
	}
	for _, at := range changed {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.writeChange(ctx, at); err != nil {
			return err
		}
	}
	if err := durable.SyncFileSystem(r.Store.WallsDir(r.ID, id)); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// upperWriter writes changes to upper directories.
type upperWriter struct {
	repo   *git.Repo
	cat    *git.CatFile
	kept   *keptWork
	paths  []store.PathMeta
	uppers []string
	made   map[string]bool // directories that exist
}

// writeChange writes a new or changed file, or a whiteout for a removed one.
func (w *upperWriter) writeChange(ctx context.Context, at string) error {
	n, in, err := Split(w.paths, at)
	if err != nil {
		return err
	}
	leaf, stays := w.kept.tree[at]
	for dir := path.Dir(at); dir != "." && !stays; dir = path.Dir(dir) {
		if _, isFile := w.kept.tree[dir]; isFile {
			return nil // a file in the place of the directory hides it
		}
	}
	if err := w.makeParents(n, path.Dir(in)); err != nil {
		return err
	}
	upper, lower := filepath.Join(w.uppers[n], in), filepath.Join(w.paths[n].Path, in)
	if stays {
		return w.writeLeaf(ctx, upper, lower, leaf)
	}
	if err := unix.Mknod(upper, unix.S_IFCHR, 0); err != nil && !(errors.Is(err, fs.ErrExist) && w.made[upper]) { // a directory in the place of the file
		return &fs.PathError{Op: "mknod", Path: upper, Err: err}
	}
	return nil
}

// makeParents makes a directory of the directory n, and those above it.
func (w *upperWriter) makeParents(n int, dir string) error {
	at, lower := w.uppers[n], w.paths[n].Path
	if dir == "." {
		return nil
	}
	for part := range strings.SplitSeq(dir, "/") {
		at, lower = filepath.Join(at, part), filepath.Join(lower, part)
		if err := w.makeDir(at, lower); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory with the permissions of that in the original, which an overlay would show otherwise. A directory takes the place
// of a file that was removed for it.
func (w *upperWriter) makeDir(at, lower string) error {
	if w.made[at] {
		return nil
	}
	w.made[at] = true
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil {
		err = os.Mkdir(at, 0o777)
	}
	if errors.Is(err, fs.ErrExist) { // a whiteout
		if err = os.Remove(at); err == nil {
			err = os.Mkdir(at, 0o777)
		}
	}
	if fi, lstatErr := os.Lstat(lower); err == nil && lstatErr == nil && fi.IsDir() {
		err = os.Chmod(at, fi.Mode().Perm()|0o700)
	}
	return err
}

// writeLeaf writes a file or symbolic link.
func (w *upperWriter) writeLeaf(ctx context.Context, at, lower string, leaf Leaf) error {
	if leaf.Mode == object.ModeSymlink {
		target, err := ReadBlob(w.cat, leaf.OID)
		if err != nil {
			return err
		}
		return os.Symlink(string(target), at)
	}
	perm := fs.FileMode(0o666)
	if leaf.Mode == object.ModeExecutable {
		perm = 0o777
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	err = WriteBlob(ctx, w.repo, w.cat, leaf.OID, f)
	if fi, lstatErr := os.Lstat(lower); err == nil && lstatErr == nil && fi.Mode().IsRegular() {
		err = f.Chmod(PermLike(fi.Mode().Perm(), leaf.Mode))
	}
	return errors.Join(err, f.Close())
}
