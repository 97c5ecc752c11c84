package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// buildIndex builds the scratch index, which equals what is on disk. It starts from the worktree's index, whose stat
// data save git from reading unchanged files.
func (x *Restoration) fill(ctx context.Context) error {
	r, dir := x.repo, filepath.Join(x.repo.ownDir(), capturePrefix+x.s.Name+"-back")
	if err := durable.RemoveTree(dir); err != nil { // left by a killed process
		return err
	}
	env, err := r.fillScratch(x.s, x.From.Head, dir)
	x.p = place{
		gitDir: dir, tree: x.s.Tree, env: env,
		config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false",
			"-c", "index.sparse=false", "-c", "core.sparseCheckout=false",
		},
	}
	if err := errors.Join(err, r.copyIndex(x.s.Name, dir)); err != nil {
		return err
	}
	entries, err := x.entries(ctx)
	if exitedWith(err, 128) { // git cannot read the index
		entries, err = nil, durable.Remove(filepath.Join(dir, "index"))
	}
	if err != nil {
		return err
	}
	for name, tag := range entries {
		if tag >= 'a' && tag <= 'z' {
			x.assumed = append(x.assumed, name)
		}
		if tag|0x20 != 's' {
			continue
		}
		if _, err := os.Lstat(filepath.Join(x.s.Tree, name)); err != nil {
			x.skipped = append(x.skipped, name)
		} else {
			x.present = append(x.present, name)
		}
	}
	// Git would not look at, nor change, the files of entries with these flags.
	for flag, paths := range map[string][]string{"--no-assume-unchanged": x.assumed, "--no-skip-worktree": x.present} {
		p := x.p
		if p.stdin = strings.Join(paths, "\x00"); p.stdin == "" {
			continue
		}
		if _, err := r.change(ctx, p, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	stay, err := x.ignoredThere(ctx, entries)
	if err != nil {
		return err
	}
	x.trees = [2]string{x.From.Tree, x.To.Tree}
	if x.trees[0], err = x.load(ctx, x.p, x.From.Tree, slices.Concat(x.skipped, stay)); err != nil {
		return err
	}
	if len(x.skipped) > 0 {
		p := x.p
		p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+filepath.Join(dir, "to"))
		if x.trees[1], err = x.load(ctx, p, x.To.Tree, x.skipped); err != nil {
			return err
		}
	}
	if len(x.skipped)+len(stay) > 0 {
		if x.changes, err = r.treeChanges(ctx, x.p, x.trees[0], x.trees[1]); err != nil {
			return err
		}
	}
	return x.fresh(ctx)
}

// indexTags returns the tag of each index entry as "git ls-files -v" prints it: H, or S for skip-worktree, in lower
// case for assume-unchanged.
func (x *Restoration) entries(ctx context.Context) (map[string]byte, error) {
	if _, err := os.Lstat(filepath.Join(x.p.gitDir, "index")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := x.repo.read(ctx, x.p, "ls-files", "-v", "-z")
	if err != nil {
		return nil, err
	}
	entries := map[string]byte{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if len(line) > 2 {
			entries[line[2:]] = line[0]
		}
	}
	return entries, nil
}

// readTreeWithout reads a tree into an index, removes some paths, and returns the resulting tree.
func (x *Restoration) load(ctx context.Context, p place, tree string, without []string) (string, error) {
	if _, err := x.repo.change(ctx, p, "read-tree", "--reset", tree); err != nil || len(without) == 0 {
		return tree, err
	}
	away := p
	away.stdin = strings.Join(without, "\x00")
	if _, err := x.repo.change(ctx, away, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
		return "", err
	}
	return x.repo.writeTree(ctx, p)
}

// refreshIndex makes sure that the files on disk equal the scratch index.
func (x *Restoration) fresh(ctx context.Context) error {
	out, err := x.repo.change(ctx, x.p, "update-index", "--ignore-submodules", "--really-refresh")
	if exitedWith(err, 1) {
		name, _, _ := strings.Cut(string(out), "\n")
		return &ChangingError{Path: strings.TrimSuffix(strings.TrimSuffix(name, ": needs update"), ": needs merge")}
	}
	return err
}

// ChangedMeanwhileError reports a file, HEAD or the index that changed while no other process should have worked in
// the worktree.
type ChangingError struct{ Path string }

func (e *ChangingError) Error() string { return e.Path + " was changed meanwhile" }

// checkFilters refuses to read or write files that need a filter which must not run.
func (x *Restoration) filtered(ctx context.Context) error {
	var goes, comes []string
	for _, c := range x.changes {
		if c.status != 'A' {
			goes = append(goes, c.path)
		}
		if c.status != 'D' {
			comes = append(comes, c.path)
		}
	}
	if len(comes) > 0 {
		if err := x.repo.mayWrite(ctx, x.s, x.p, x.trees[1], comes); err != nil {
			return err
		}
	}
	return x.repo.mayRead(ctx, x.s, x.p, goes)
}

// checkBlobs makes sure that every blob to be written exists: git would notice a missing one only half-way.
func (x *Restoration) complete(ctx context.Context) error {
	t, err := x.repo.ask(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	var paths, blobs []string
	for _, c := range x.changes {
		if c.status != 'D' && c.newMode != submodule {
			paths, blobs = append(paths, c.path), append(blobs, c.newOID)
		}
	}
	found, err := t.info(blobs...)
	if err != nil {
		return err
	}
	for i, o := range found {
		if o.Type != "blob" {
			return fmt.Errorf("%s: %w", paths[i], &IncompleteError{OID: blobs[i], Want: "blob", Have: o.Type})
		}
	}
	return nil
}

// findReadOnlyDirs finds the directories in which files have to change and which are not writable. It fails for those
// that chmod cannot make writable.
func (x *Restoration) writable() error {
	seen := map[string]bool{}
	for _, c := range x.changes {
		dir := x.realDir(c.path)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		at := filepath.Join(x.s.Tree, dir)
		if unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil {
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		if err != nil || int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IWUSR != 0 && st.Mode&unix.S_IXUSR != 0 {
			return &fs.PathError{Op: "write to", Path: at, Err: fs.ErrPermission}
		}
		x.closed = append(x.closed, dir)
	}
	return nil
}

// deepestDir returns the directory that has to be writable for a path to change: the deepest existing parent that is
// reached through no symlink.
func (x *Restoration) realDir(path string) string {
	dir := "."
	for part := range strings.SplitSeq(filepath.Dir(path), "/") {
		next := filepath.Join(dir, part)
		if fi, err := os.Lstat(filepath.Join(x.s.Tree, next)); err != nil || !fi.IsDir() {
			break
		}
		dir = next
	}
	return dir
}

// RestoreFiles makes the files on disk those of the target state.
func (x *Restoration) Files(ctx context.Context) (err error) {
	if len(x.closed) > 0 {
		root, err := os.OpenRoot(x.s.Tree)
		if err != nil {
			return err
		}
		defer root.Close()
		for _, dir := range x.closed {
			fi, err := root.Lstat(dir)
			if err != nil || !fi.IsDir() {
				continue
			}
			if err := root.Chmod(dir, fi.Mode().Perm()|0o700); err != nil {
				return err
			}
			defer root.Chmod(dir, fi.Mode().Perm()) // fails harmlessly if it has been removed
		}
	}
	if err := x.merge(ctx); err != nil {
		return err
	}
	// Git reports a file that it could not remove, but carries on and succeeds.
	for _, c := range x.changes {
		if c.status == 'D' && c.oldMode != submodule && x.stands(c.path) {
			return &fs.PathError{Op: "remove", Path: filepath.Join(x.s.Tree, c.path), Err: errors.New("it is still there")}
		}
	}
	return x.fresh(ctx)
}

// mergeToTarget runs git's two-way merge, from the scratch index to the target state.
func (x *Restoration) merge(ctx context.Context, options ...string) error {
	p := x.p
	p.config = slices.Concat(p.config, x.repo.workers())
	args := slices.Concat([]string{"read-tree"}, options, []string{"-m", "-u", "--no-recurse-submodules", x.trees[0], x.trees[1]})
	_, err := x.repo.change(ctx, p, args...)
	return err
}

// isFile reports whether there is a file at a path, reached through no symlink.
func (x *Restoration) stands(path string) bool {
	fi, err := os.Lstat(filepath.Join(x.s.Tree, path))
	return err == nil && !fi.IsDir() && direct(x.s.Tree, path)
}
