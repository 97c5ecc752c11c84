package snapshot

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// ObstructionError reports something that no state can hold, at a path that the target state needs.
type ObstructionError struct {
	Path   string
	Reason string
}

func (e *ObstructionError) Error() string { return e.Path + " is in the way: " + e.Reason }

// ObstructingPaths lists the files on disk at paths that the target state needs, and that the state just captured
// does not hold: ignored ones, and those left out. It refuses repositories, and everything that is neither a file nor
// a symlink nor a directory.
func ObstructingPaths(ctx context.Context, r *git.Repo, s git.WorktreeSpec, from, to State) ([]string, error) {
	changes, err := r.TreeChanges(ctx, git.RunOptions{}, from.Tree, to.Tree)
	if err != nil {
		return nil, err
	}
	w := obstructionFinder{spec: s, known: map[string]bool{}, checkedDirs: map[string]bool{}}
	for _, c := range changes {
		if c.Status == 'D' {
			w.known[c.Path] = true
		}
	}
	for _, c := range changes {
		if top, _, _ := strings.Cut(c.Path, "/"); strings.EqualFold(top, s.Omit) {
			return nil, &ObstructionError{Path: filepath.Join(s.Dir, s.Omit), Reason: "the snapshot contains this path, which is reserved"}
		}
		if c.Status != 'A' {
			continue // the captured state holds the file on disk
		}
		if err := w.checkPath(c.Path, c.NewMode == object.ModeGitlinkText); err != nil {
			return nil, err
		}
	}
	return w.paths, nil
}

// obstructionFinder collects what is on disk at the paths of added files.
type obstructionFinder struct {
	spec        git.WorktreeSpec
	known       map[string]bool // paths that only the first state holds, and those already reported
	checkedDirs map[string]bool // parent directories already checked
	paths       []string
}

// refuseRepository returns an error if a directory is a repository.
func (w *obstructionFinder) refuseRepository(dir string) error {
	if _, err := os.Lstat(filepath.Join(w.spec.LiveDir(), dir, ".git")); err != nil {
		return nil
	}
	return &ObstructionError{Path: filepath.Join(w.spec.Dir, dir), Reason: "it is a nested repository, which is in no snapshot; move it away"}
}

// checkPath checks what is on disk at a path and its parents. For a submodule git creates only a directory.
func (w *obstructionFinder) checkPath(name string, directory bool) error {
	for end := 0; end < len(name); {
		if next := strings.IndexByte(name[end:], '/'); next >= 0 {
			end += next
		} else {
			end = len(name)
		}
		at := name[:end]
		end++
		if w.checkedDirs[at] {
			continue
		}
		fi, err := os.Lstat(filepath.Join(w.spec.LiveDir(), at))
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return nil
		case err != nil:
			return err
		case !fi.IsDir():
			return w.checkFile(at, fi.Mode())
		case at == name && directory:
			return nil
		case at == name:
			return w.checkBelow(at)
		}
		w.checkedDirs[at] = true
		if err := w.refuseRepository(at); err != nil {
			return err
		}
	}
	return nil
}

// checkFile handles a file at a path where a directory or another file has to be.
func (w *obstructionFinder) checkFile(at string, mode fs.FileMode) error {
	switch {
	case w.known[at]:
	case mode.IsRegular() || mode&fs.ModeSymlink != 0:
		w.known[at] = true
		w.paths = append(w.paths, at)
	default:
		return &ObstructionError{Path: filepath.Join(w.spec.Dir, at), Reason: "it is a special file, which a snapshot cannot hold; move it away"}
	}
	return nil
}

// checkBelow handles a directory at a path where a file has to be.
func (w *obstructionFinder) checkBelow(dir string) error {
	return filepath.WalkDir(filepath.Join(w.spec.LiveDir(), dir), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(w.spec.LiveDir(), name)
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return w.checkFile(path.Clean(filepath.ToSlash(rel)), d.Type())
		}
		return w.refuseRepository(rel)
	})
}

// ignoredInTarget lists the untracked files to be removed that the rules of the target state ignore: they may have
// existed then, ignored, before the rules changed. They stay, unless the target state needs their path. A file in the
// index of the target state is not ignored there, whatever the rules say. When finishing a killed restoration, the
// rules of the state from which it started count as well: they may already be gone from the disk, and the files that
// they ignored would look new.
func (x *Restoration) ignoredInTarget(ctx context.Context, tracked map[string]byte) (_ []string, err error) {
	r, changes := x.repo, x.changes
	rules, wanted, files := false, map[string]bool{}, map[string]bool{} // wanted: added paths and all of their parents
	for _, c := range changes {
		rules = rules || path.Base(c.Path) == ".gitignore"
		files[c.Path] = c.Status == 'A'
		for at := c.Path; c.Status == 'A' && at != "." && !wanted[at]; at = path.Dir(at) {
			wanted[at] = true
		}
	}
	var going []string
	for _, c := range changes {
		if c.Status == 'D' && c.OldMode != object.ModeGitlinkText && tracked[c.Path] == 0 && !wanted[c.Path] && !isBelowAny(c.Path, files) {
			going = append(going, c.Path)
		}
	}
	if len(going) == 0 {
		return nil, nil
	}
	var stay []string
	if x.Interrupted.Tree != "" {
		held, err := treePaths(ctx, x.repo, x.Interrupted.Tree)
		if err != nil {
			return nil, err
		}
		if stay, err = ignoredByTree(ctx, r, x.spec, x.Interrupted.Tree, withoutNames(going, held)); err != nil {
			return nil, err
		}
	}
	if !rules {
		return stay, nil
	}
	if going, err = x.notStagedInTarget(ctx, going); err != nil {
		return nil, err
	}
	then, err := ignoredByTree(ctx, r, x.spec, x.To.Tree, going)
	stay = append(stay, then...)
	slices.Sort(stay)
	return slices.Compact(stay), err
}

// ignoredByTree lists those of some paths that the .gitignore files of a tree ignore.
func ignoredByTree(ctx context.Context, r *git.Repo, s git.WorktreeSpec, tree string, names []string) (_ []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	if r, err = r.WithConfigOf(ctx, s); err != nil {
		return nil, err
	}
	dir := filepath.Join(r.AgencyDir(), git.CapturePrefix+s.Name+"-rules")
	if err := durable.RemoveTree(dir); err != nil { // left by a killed process
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	if err := writeIgnoreFiles(ctx, r, tree, dir); err != nil {
		return nil, err
	}
	return status.IgnoredPaths(r, s, dir, names)
}

// notStagedInTarget lists those of some paths that are not in the index of the target state.
func (x *Restoration) notStagedInTarget(ctx context.Context, names []string) ([]string, error) {
	staged := map[string]bool{}
	for _, c := range x.operation.Conflicts {
		staged[c.Path] = true
	}
	if tree := cmp.Or(x.To.IndexTree, x.operation.MergedTree); tree != "" {
		more, err := treePaths(ctx, x.repo, tree)
		if err != nil {
			return nil, err
		}
		maps.Copy(staged, more)
	}
	return withoutNames(names, staged), nil
}

// treePaths returns the paths of all files in a tree.
func treePaths(ctx context.Context, r *git.Repo, tree string) (map[string]bool, error) {
	out, err := r.RunRead(ctx, git.RunOptions{Reading: r.ReadingOf("listing the files of " + tree)}, "ls-tree", "-r", "-z", "--name-only", tree)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range strings.SplitSeq(string(out), "\x00") {
		names[name] = true
	}
	return names, nil
}

// withoutNames returns a copy of names without some of them.
func withoutNames(names []string, some map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return some[name] })
}

// isBelowAny reports whether a path lies below one of these files.
func isBelowAny(name string, files map[string]bool) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if files[dir] {
			return true
		}
	}
	return false
}

// writeIgnoreFiles writes the .gitignore files of a tree, and nothing else of it, into a directory.
func writeIgnoreFiles(ctx context.Context, r *git.Repo, tree, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	out, err := r.RunRead(ctx, git.RunOptions{Reading: r.ReadingOf("listing the files of " + tree)}, "ls-tree", "-r", "-z", tree)
	if err != nil {
		return err
	}
	var names, oids []string
	for line := range strings.SplitSeq(string(out), "\x00") {
		info, name, _ := strings.Cut(line, "\t")
		if fields := strings.Fields(info); path.Base(name) == ".gitignore" && len(fields) == 3 && strings.HasPrefix(fields[0], "100") {
			names, oids = append(names, name), append(oids, fields[2])
		}
	}
	contents, err := readBlobs(ctx, r, oids)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for i, name := range names {
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return err
		}
		if err := root.WriteFile(name, contents[i], 0o666); err != nil {
			return err
		}
	}
	return nil
}
