package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// modeGitlinkText is the mode of a submodule, as text.
const modeGitlinkText = "160000"

// treeChange is a path that differs between two trees.
type treeChange struct {
	status           byte // A, D, M, or T for a change of type
	oldMode, newMode string
	oldOID, newOID   string
	path             string
}

// treeChanges lists the paths that differ between two trees.
func (r *Repo) treeChanges(ctx context.Context, p runOptions, from, to string) ([]treeChange, error) {
	p.env = append(slices.Clone(p.env), "GIT_NO_REPLACE_OBJECTS=1")
	out, err := r.runRead(ctx, p, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", from, to)
	if err != nil {
		return nil, err
	}
	var changes []treeChange
	parts := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		fields := strings.Fields(strings.TrimPrefix(parts[i], ":")) // "<mode> <mode> <oid> <oid> <status>"
		if len(fields) != 5 {
			return nil, fmt.Errorf("git diff-tree answered %q", parts[i])
		}
		changes = append(changes, treeChange{status: fields[4][0], oldMode: fields[0], newMode: fields[1], oldOID: fields[2], newOID: fields[3], path: parts[i+1]})
	}
	return changes, nil
}

// ObstructionError reports something that no state can hold, at a path that the target state needs.
type ObstructionError struct {
	Path   string
	Reason string
}

func (e *ObstructionError) Error() string { return e.Path + " is in the way: " + e.Reason }

// ObstructingPaths lists the files on disk at paths that the target state needs, and that the state just captured
// does not hold: ignored ones, and those left out. It refuses repositories, and everything that is neither a file nor
// a symlink nor a directory.
func (r *Repo) ObstructingPaths(ctx context.Context, s WorktreeSpec, from, to State) ([]string, error) {
	changes, err := r.treeChanges(ctx, runOptions{}, from.Tree, to.Tree)
	if err != nil {
		return nil, err
	}
	w := obstructionFinder{spec: s, known: map[string]bool{}, checkedDirs: map[string]bool{}}
	for _, c := range changes {
		if c.status == 'D' {
			w.known[c.path] = true
		}
	}
	for _, c := range changes {
		if top, _, _ := strings.Cut(c.path, "/"); strings.EqualFold(top, s.Omit) {
			return nil, &ObstructionError{Path: filepath.Join(s.Dir, s.Omit), Reason: "the state has one of its own, which is reserved"}
		}
		if c.status != 'A' {
			continue // the captured state holds the file on disk
		}
		if err := w.checkPath(c.path, c.newMode == modeGitlinkText); err != nil {
			return nil, err
		}
	}
	return w.paths, nil
}

// obstructionFinder collects what is on disk at the paths of added files.
type obstructionFinder struct {
	spec        WorktreeSpec
	known       map[string]bool // paths that only the first state holds, and those already reported
	checkedDirs map[string]bool // parent directories already checked
	paths       []string
}

// refuseRepository returns an error if a directory is a repository.
func (w *obstructionFinder) refuseRepository(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		return nil
	}
	return &ObstructionError{Path: dir, Reason: "it is a repository of its own, which no snapshot holds; move it away"}
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
		fi, err := os.Lstat(filepath.Join(w.spec.Dir, at))
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
		if err := w.refuseRepository(filepath.Join(w.spec.Dir, at)); err != nil {
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
		return &ObstructionError{Path: filepath.Join(w.spec.Dir, at), Reason: "no snapshot can hold it; move it away"}
	}
	return nil
}

// checkBelow handles a directory at a path where a file has to be.
func (w *obstructionFinder) checkBelow(dir string) error {
	return filepath.WalkDir(filepath.Join(w.spec.Dir, dir), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(w.spec.Dir, name)
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return w.checkFile(path.Clean(filepath.ToSlash(rel)), d.Type())
		}
		return w.refuseRepository(name)
	})
}

// ignoredInTarget lists the untracked files to be removed that the rules of the target state ignore: they may have
// existed then, ignored, before the rules changed. They stay, unless the target state needs their path. A file in the
// index of the target state is not ignored there, whatever the rules say. When finishing a killed rollback, the rules
// of the state from which it started count as well: they may already be gone from the disk, and the files that they
// ignored would look new.
func (x *Restoration) ignoredInTarget(ctx context.Context, tracked map[string]byte) (_ []string, err error) {
	r, changes := x.repo, x.changes
	rules, wanted, files := false, map[string]bool{}, map[string]bool{} // wanted: added paths and all of their parents
	for _, c := range changes {
		rules = rules || path.Base(c.path) == ".gitignore"
		files[c.path] = c.status == 'A'
		for at := c.path; c.status == 'A' && at != "." && !wanted[at]; at = path.Dir(at) {
			wanted[at] = true
		}
	}
	var going []string
	for _, c := range changes {
		if c.status == 'D' && c.oldMode != modeGitlinkText && tracked[c.path] == 0 && !wanted[c.path] && !isBelowAny(c.path, files) {
			going = append(going, c.path)
		}
	}
	if len(going) == 0 {
		return nil, nil
	}
	var stay []string
	if x.Interrupted.Tree != "" {
		held, err := x.repo.treePaths(ctx, x.Interrupted.Tree)
		if err != nil {
			return nil, err
		}
		if stay, err = r.ignoredByTree(ctx, x.spec, x.Interrupted.Tree, withoutNames(going, held)); err != nil {
			return nil, err
		}
	}
	if !rules {
		return stay, nil
	}
	if going, err = x.notStagedInTarget(ctx, going); err != nil {
		return nil, err
	}
	then, err := r.ignoredByTree(ctx, x.spec, x.To.Tree, going)
	stay = append(stay, then...)
	slices.Sort(stay)
	return slices.Compact(stay), err
}

// ignoredByTree lists those of some paths that the .gitignore files of a tree ignore.
func (r *Repo) ignoredByTree(ctx context.Context, s WorktreeSpec, tree string, names []string) (_ []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	if r, err = r.withConfigOf(ctx, s); err != nil {
		return nil, err
	}
	dir := filepath.Join(r.agencyDir(), capturePrefix+s.Name+"-rules")
	if err := durable.RemoveTree(dir); err != nil { // left by a killed process
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	if err := r.writeIgnoreFiles(ctx, tree, dir); err != nil {
		return nil, err
	}
	p := runOptions{workTree: dir, stdin: strings.Join(names, "\x00") + "\x00"}
	out, err := r.runRead(ctx, p, "check-ignore", "--no-index", "-z", "--stdin")
	if err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

// notStagedInTarget lists those of some paths that are not in the index of the target state.
func (x *Restoration) notStagedInTarget(ctx context.Context, names []string) ([]string, error) {
	staged := map[string]bool{}
	for _, c := range x.operation.Conflicts {
		staged[c.Path] = true
	}
	if tree := cmp.Or(x.To.IndexTree, x.operation.MergedTree); tree != "" {
		more, err := x.repo.treePaths(ctx, tree)
		if err != nil {
			return nil, err
		}
		maps.Copy(staged, more)
	}
	return withoutNames(names, staged), nil
}

// treePaths returns the paths of all files in a tree.
func (r *Repo) treePaths(ctx context.Context, tree string) (map[string]bool, error) {
	out, err := r.runRead(ctx, runOptions{}, "ls-tree", "-r", "-z", "--name-only", tree)
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
func (r *Repo) writeIgnoreFiles(ctx context.Context, tree, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	out, err := r.runRead(ctx, runOptions{}, "ls-tree", "-r", "-z", tree)
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
	contents, err := r.readBlobs(ctx, oids)
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
