package status

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
)

// classifyUntracked sorts the paths without an index entry into files that belong to the state, ignored paths, and
// paths that are left out and reported.
func (v *worktreeScan) classifyUntracked(ctx context.Context) error {
	for _, f := range v.result.untracked {
		dir, isDir := strings.CutSuffix(f.name, "/")
		ignored, err := v.isIgnored(dir, isDir)
		switch {
		case err != nil:
			return err
		case !isDir:
			if !ignored {
				v.addUntracked(f)
			}
		case ignored:
			v.ignoredDirs = append(v.ignoredDirs, dir)
		default:
			if err := v.walkUntracked(ctx, dir); err != nil {
				if beneath.IsGone(err) {
					err = &StillChangingError{Dir: v.spec.Dir, Paths: []string{dir}} // it has just gone
				}
				return err
			}
		}
	}
	for _, name := range v.spec.ForcedPaths {
		if err := v.addForced(ctx, name); err != nil {
			return err
		}
	}
	if !v.spec.InUse {
		var nested []string
		for _, l := range v.leftOut {
			if l.Reason == OmitRepository {
				nested = append(nested, filepath.Join(v.spec.Dir, l.Path))
			}
		}
		if len(nested) > 0 {
			return &NestedRepositoryError{Dir: v.spec.Dir, Paths: nested}
		}
	}
	return nil
}

// isIgnored reports whether an untracked path is ignored, and does not belong to the state.
func (v *worktreeScan) isIgnored(name string, isDir bool) (bool, error) {
	if v.spec.IncludeIgnored {
		return false, nil
	}
	if v.ignoreRules == nil {
		var err error
		if v.ignoreRules, err = v.newIgnoreRules(); err != nil {
			return false, err
		}
	}
	return v.ignoreRules.IsIgnored(name, isDir)
}

// walkUntracked adds the files below a directory without any index entry. A repository is left out.
func (v *worktreeScan) walkUntracked(ctx context.Context, dir string) error {
	entries, st, err := v.readDir(ctx, dir)
	if err != nil {
		return err
	}
	if v.untrackedDirStats == nil {
		v.untrackedDirStats = map[string]git.FileStat{}
	}
	v.untrackedDirStats[dir] = git.FileStatOf(&st)
	if slices.ContainsFunc(entries, isDotGit) {
		v.leftOut = append(v.leftOut, LeftOut{dir, OmitRepository})
		return nil
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if !e.Kind.IsDir() && !e.Kind.IsRegular() && e.Kind&fs.ModeSymlink == 0 {
			if strings.HasPrefix(e.Name, ".git") {
				return &git.SpecialFileError{Path: v.tree.Join(name)}
			}
			v.result.hasSpecialFile = true
			continue
		}
		ignored, err := v.isIgnored(name, e.Kind.IsDir())
		switch {
		case err != nil:
			return err
		case ignored && e.Kind.IsDir():
			v.ignoredDirs = append(v.ignoredDirs, name)
		case ignored:
		case e.Kind.IsDir():
			if err := v.walkUntracked(ctx, name); err != nil && !beneath.IsGone(err) { // the stat data of its parent tell
				return err
			}
		default:
			if err := v.addUntrackedPath(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// readDir lists a directory, sorted by name.
func (v *worktreeScan) readDir(ctx context.Context, dir string) ([]beneath.Entry, unix.Stat_t, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, unix.Stat_t{}, err
	}
	entries, st, err := v.tree.ReadDir(dir)
	slices.SortFunc(entries, func(a, b beneath.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, st, err
}

func isDotGit(e beneath.Entry) bool { return e.Name == ".git" }

// addUntracked adds a file to the state, unless its name looks like a secret.
func (v *worktreeScan) addUntracked(f pathStat) {
	if v.spec.LooksSecret(f.name) {
		v.leftOut = append(v.leftOut, LeftOut{f.name, OmitSecret})
		return
	}
	if v.spec.IsLeft(f.name) {
		v.leftOut = append(v.leftOut, LeftOut{f.name, OmitLeft})
		return
	}
	v.untrackedFiles = append(v.untrackedFiles, f)
}

// addUntrackedPath is addUntracked for a path without stat data. It ignores all but regular files and symlinks.
func (v *worktreeScan) addUntrackedPath(name string) error {
	var st unix.Stat_t
	if err := v.tree.Lstat(name, &st); err != nil {
		if beneath.IsGone(err) {
			return nil // gone since it was listed
		}
		return err
	}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Mode&unix.S_IRUSR == 0 && os.Geteuid() != 0 && !v.spec.LooksSecret(name) { // root may read everything
			return &UnreadableError{Path: v.tree.Join(name)}
		}
		fallthrough
	case unix.S_IFLNK:
		v.addUntracked(pathStat{name, git.FileStatOf(&st)})
	}
	return nil
}

// addForced adds everything at a path to the state, even if it is ignored or looks like a secret.
func (v *worktreeScan) addForced(ctx context.Context, name string) error {
	withSecrets := *v
	withSecrets.spec.SecretPatterns = nil
	err := withSecrets.walkForced(ctx, name)
	v.untrackedFiles = withSecrets.untrackedFiles
	v.leftOut = slices.DeleteFunc(v.leftOut, func(l LeftOut) bool {
		return slices.ContainsFunc(v.untrackedFiles, func(f pathStat) bool { return f.name == l.Path })
	})
	if beneath.IsGone(err) {
		return nil
	}
	return err
}

func (v *worktreeScan) walkForced(ctx context.Context, name string) error {
	var st unix.Stat_t
	if err := v.tree.Lstat(name, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		_, tracked := slices.BinarySearchFunc(v.entries, name, func(e index.Entry, name string) int { return strings.Compare(string(e.Name), name) })
		if tracked || slices.ContainsFunc(v.untrackedFiles, func(f pathStat) bool { return f.name == name }) {
			return nil
		}
		return v.addUntrackedPath(name)
	}
	entries, _, err := v.readDir(ctx, name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, isDotGit) {
		return &NestedRepositoryError{Dir: v.spec.Dir, Paths: []string{v.tree.Join(name)}}
	}
	for _, e := range entries {
		if err := v.walkForced(ctx, path.Join(name, e.Name)); err != nil {
			return err
		}
	}
	return nil
}
