package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"golang.org/x/sys/unix"
)

// buildIndex builds the scratch index, which equals what is on disk. It starts from the worktree's index, whose stat
// data save git from reading unchanged files.
func (x *Restoration) buildIndex(ctx context.Context) error {
	r, dir := x.repo, filepath.Join(x.repo.AgencyDir(), git.CapturePrefix+x.spec.Name+"-back")
	if err := durable.RemoveTree(dir); err != nil { // left by a killed process
		return err
	}
	env, err := r.FillScratchGitDir(x.spec, x.From.Head, dir)
	x.scratch = git.RunOptions{
		GitDir: dir, WorkTree: x.spec.Dir, Mounted: x.spec.Mounted, Env: env,
		Config: []string{
			"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false",
			"-c", "index.sparse=false", "-c", "core.sparseCheckout=false",
		},
		Reading: r.CheckoutReading("the checkout of " + x.To.Tree),
	}
	if err := errors.Join(err, r.CopyIndexFiles(x.spec.Name, dir)); err != nil {
		return err
	}
	entries, err := x.indexTags(ctx)
	if git.ExitedWith(err, 128) { // git cannot read the index
		entries, err = nil, durable.Remove(filepath.Join(dir, "index"))
	}
	if err != nil {
		return err
	}
	if err := x.checkAttributes(ctx, entries); err != nil {
		return err
	}
	for name, tag := range entries {
		if tag >= 'a' && tag <= 'z' {
			x.assumeUnchanged = append(x.assumeUnchanged, name)
		}
		if tag|0x20 != 's' {
			continue
		}
		if _, err := os.Lstat(filepath.Join(x.spec.LiveDir(), name)); err != nil {
			x.skippedAbsent = append(x.skippedAbsent, name)
		} else {
			x.skippedPresent = append(x.skippedPresent, name)
		}
	}
	// Git would not look at, nor change, the files of entries with these flags.
	for flag, paths := range map[string][]string{"--no-assume-unchanged": x.assumeUnchanged, "--no-skip-worktree": x.skippedPresent} {
		p := x.scratch
		if p.Stdin = strings.Join(paths, "\x00"); p.Stdin == "" {
			continue
		}
		if _, err := r.RunWrite(ctx, p, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	stay, err := x.ignoredInTarget(ctx, entries)
	if err != nil {
		return err
	}
	x.trees = [2]string{x.From.Tree, x.To.Tree}
	if x.trees[0], err = x.readTreeWithout(ctx, x.scratch, x.From.Tree, slices.Concat(x.skippedAbsent, stay)); err != nil {
		return err
	}
	if len(x.skippedAbsent) > 0 {
		p := x.scratch
		p.Env = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+filepath.Join(dir, "to"))
		if x.trees[1], err = x.readTreeWithout(ctx, p, x.To.Tree, x.skippedAbsent); err != nil {
			return err
		}
	}
	if len(x.skippedAbsent)+len(stay) > 0 {
		if x.changes, err = r.TreeChanges(ctx, x.scratch, x.trees[0], x.trees[1]); err != nil {
			return err
		}
	}
	return x.refreshIndex(ctx)
}

// checkAttributes refuses slow attributes that apply to files in the index or to files that change. It comes before the first
// git that reads or writes a file of the worktree.
func (x *Restoration) checkAttributes(ctx context.Context, entries map[string]byte) (err error) {
	c, err := status.OpenAttributesCheck(x.repo, x.spec, x.From.Head)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for name := range entries {
		if err := c.CheckFor(ctx, name); err != nil {
			return err
		}
	}
	for _, change := range x.changes {
		if err := c.CheckFor(ctx, change.Path); err != nil {
			return err
		}
	}
	return nil
}

// indexTags returns the tag of each index entry as "git ls-files -v" prints it: H, or S for skip-worktree, in lower
// case for assume-unchanged.
func (x *Restoration) indexTags(ctx context.Context) (map[string]byte, error) {
	if _, err := os.Lstat(filepath.Join(x.scratch.GitDir, "index")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := x.repo.RunRead(ctx, x.scratch, "ls-files", "-v", "-z")
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
func (x *Restoration) readTreeWithout(ctx context.Context, p git.RunOptions, tree string, without []string) (string, error) {
	if _, err := x.repo.RunWrite(ctx, p, "read-tree", "--reset", tree); err != nil || len(without) == 0 {
		return tree, err
	}
	away := p
	away.Stdin = strings.Join(without, "\x00")
	if _, err := x.repo.RunWrite(ctx, away, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
		return "", err
	}
	return x.repo.WriteTree(ctx, p)
}

// refreshIndex makes sure that the files on disk equal the scratch index.
func (x *Restoration) refreshIndex(ctx context.Context) error {
	out, err := x.repo.RunWrite(ctx, x.scratch, "update-index", "--ignore-submodules", "--really-refresh")
	if git.ExitedWith(err, 1) {
		name, _, _ := strings.Cut(string(out), "\n")
		return &ChangedMeanwhileError{Path: strings.TrimSuffix(strings.TrimSuffix(name, ": needs update"), ": needs merge")}
	}
	return err
}

// ChangedMeanwhileError reports a file, HEAD or the index that changed while no other process should have worked in
// the worktree.
type ChangedMeanwhileError struct{ Path string }

func (e *ChangedMeanwhileError) Error() string { return e.Path + " was changed meanwhile" }

// checkFilters refuses to read or write files that need a filter which must not run.
func (x *Restoration) checkFilters(ctx context.Context) error {
	var goes, comes []string
	for _, c := range x.changes {
		if c.Status != 'A' {
			goes = append(goes, c.Path)
		}
		if c.Status != 'D' {
			comes = append(comes, c.Path)
		}
	}
	if len(comes) > 0 {
		if err := x.repo.CheckSmudgeFilters(ctx, x.spec, x.scratch, x.trees[1], comes); err != nil {
			return err
		}
	}
	return x.repo.CheckCleanFilters(ctx, x.spec, x.scratch, goes)
}

// checkBlobs makes sure that every blob to be written exists: git would notice a missing one only half-way.
func (x *Restoration) checkBlobs(ctx context.Context) error {
	t, err := x.repo.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	var paths, blobs []string
	for _, c := range x.changes {
		if c.Status != 'D' && c.NewMode != object.ModeGitlinkText {
			paths, blobs = append(paths, c.Path), append(blobs, c.NewOID)
		}
	}
	found, err := t.Lookup(blobs...)
	if err != nil {
		return err
	}
	for i, o := range found {
		if o.Type != "blob" {
			return fmt.Errorf("%s: %w", paths[i], &object.IncompleteError{OID: blobs[i], Want: "blob", Have: o.Type})
		}
	}
	return nil
}

// findReadOnlyDirs finds the directories in which files have to change and which are not writable. It fails for those
// that chmod cannot make writable.
func (x *Restoration) findReadOnlyDirs() error {
	seen := map[string]bool{}
	for _, c := range x.changes {
		dir := x.deepestDir(c.Path)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		at := filepath.Join(x.spec.LiveDir(), dir)
		if x.spec.Mounted != nil && dir == "." {
			at += "/." // it is a symbolic link
		}
		if unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil {
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		if err != nil || int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IWUSR != 0 && st.Mode&unix.S_IXUSR != 0 {
			return &fs.PathError{Op: "write to", Path: filepath.Join(x.spec.Dir, dir), Err: fs.ErrPermission}
		}
		x.readOnlyDirs = append(x.readOnlyDirs, dir)
	}
	return nil
}

// deepestDir returns the directory that has to be writable for a path to change: the deepest existing parent that is
// reached through no symlink.
func (x *Restoration) deepestDir(path string) string {
	dir := "."
	for part := range strings.SplitSeq(filepath.Dir(path), "/") {
		next := filepath.Join(dir, part)
		if fi, err := os.Lstat(filepath.Join(x.spec.LiveDir(), next)); err != nil || !fi.IsDir() {
			break
		}
		dir = next
	}
	return dir
}

// RestoreFiles makes the files on disk those of the target state.
func (x *Restoration) RestoreFiles(ctx context.Context) (err error) {
	if len(x.readOnlyDirs) > 0 {
		root, err := os.OpenRoot(x.spec.LiveDir())
		if err != nil {
			return err
		}
		defer root.Close()
		for _, dir := range x.readOnlyDirs {
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
	if err := x.mergeToTarget(ctx); err != nil {
		return err
	}
	// Git reports a file that it could not remove, but carries on and succeeds.
	for _, c := range x.changes {
		if c.Status == 'D' && c.OldMode != object.ModeGitlinkText && x.isFile(c.Path) {
			return &fs.PathError{Op: "remove", Path: filepath.Join(x.spec.Dir, c.Path), Err: errors.New("it is still there")}
		}
	}
	return x.refreshIndex(ctx)
}

// mergeToTarget runs git's two-way merge, from the scratch index to the target state.
func (x *Restoration) mergeToTarget(ctx context.Context, options ...string) error {
	p := x.scratch
	p.Config = slices.Concat(p.Config, x.repo.CheckoutWorkersConfig())
	args := slices.Concat([]string{"read-tree"}, options, []string{"-m", "-u", "--no-recurse-submodules", x.trees[0], x.trees[1]})
	_, err := x.repo.RunWrite(ctx, p, args...)
	return err
}

// isFile reports whether there is a file at a path, reached through no symlink.
func (x *Restoration) isFile(path string) bool {
	fi, err := os.Lstat(filepath.Join(x.spec.LiveDir(), path))
	return err == nil && !fi.IsDir() && git.ParentsAreDirs(x.spec.LiveDir(), path)
}
