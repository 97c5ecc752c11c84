package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// classifyUntracked sorts the paths without an index entry into files that belong to the state, ignored paths, and
// paths that are left out and reported.
func (v *worktreeScan) classifyUntracked(ctx context.Context) error {
	var asked []string
	for _, f := range v.result.untracked {
		asked = append(asked, f.name)
	}
	ignored, err := v.ignoredPaths(ctx, asked)
	if err != nil {
		return err
	}
	for _, f := range v.result.untracked {
		dir, isDir := strings.CutSuffix(f.name, "/")
		switch {
		case ignored[f.name]:
			if isDir {
				v.ignoredDirs = append(v.ignoredDirs, dir)
			}
		case !isDir:
			v.addUntracked(f)
		case v.isNestedRepository(dir):
			v.leftOut = append(v.leftOut, LeftOut{dir, OmitRepository})
		default:
			// Checked first, because git would skip unreadable files silently, and block on a FIFO.
			_, _, err := git.WalkWorktree(filepath.Join(v.spec.Dir, dir))
			if git.IsNotExist(err) {
				return &StillChangingError{Dir: v.spec.Dir, Paths: []string{dir}} // it has just gone
			}
			if err != nil {
				return err
			}
			if err := v.statUntrackedDirs(dir); err != nil {
				return err
			}
			v.untrackedDirs = append(v.untrackedDirs, dir)
		}
	}
	if v.listedPaths, err = v.listUntracked(ctx); err != nil {
		return err
	}
	for _, name := range v.listedPaths {
		if dir, nested := strings.CutSuffix(name, "/"); nested {
			v.leftOut = append(v.leftOut, LeftOut{dir, OmitRepository})
			continue
		}
		if err := v.addUntrackedPath(name); err != nil {
			return err
		}
	}
	for _, name := range v.spec.ForcedPaths {
		if err := v.addForced(name); err != nil {
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

// statUntrackedDirs records the stat data of an untracked directory and all directories below it, before they are
// listed.
func (v *worktreeScan) statUntrackedDirs(dir string) error {
	if v.untrackedDirStats == nil {
		v.untrackedDirStats = map[string]git.FileStat{}
	}
	return filepath.WalkDir(filepath.Join(v.spec.Dir, dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since it was listed; the stat data of its parent tell
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		name, err := filepath.Rel(v.spec.Dir, path)
		if err == nil {
			v.untrackedDirStats[name] = v.statNow(name)
		}
		return err
	})
}

func (v *worktreeScan) isNestedRepository(dir string) bool {
	_, err := os.Lstat(filepath.Join(v.spec.Dir, dir, ".git"))
	return err == nil
}

// addUntracked adds a file to the state, unless its name looks like a secret.
func (v *worktreeScan) addUntracked(f pathStat) {
	if v.spec.LooksSecret(f.name) {
		v.leftOut = append(v.leftOut, LeftOut{f.name, OmitSecret})
		return
	}
	v.untrackedFiles = append(v.untrackedFiles, f)
}

// addUntrackedPath is addUntracked for a path without stat data. It ignores all but regular files and symlinks.
func (v *worktreeScan) addUntrackedPath(name string) error {
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(v.spec.Dir, name), &st)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return nil // gone since it was listed
	case err != nil:
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if kind := uint32(st.Mode) & unix.S_IFMT; kind == unix.S_IFREG || kind == unix.S_IFLNK {
		v.addUntracked(pathStat{name, git.FileStatOf(&st)})
	}
	return nil
}

// addForced adds everything at a path to the state, even if it is ignored or looks like a secret.
func (v *worktreeScan) addForced(name string) error {
	withSecrets := *v
	withSecrets.spec.SecretPatterns = nil
	if !git.ParentsAreDirs(v.spec.Dir, name) { // git follows no symlink either
		return nil
	}
	err := filepath.WalkDir(filepath.Join(v.spec.Dir, name), func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(v.spec.Dir, at)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if v.isNestedRepository(rel) {
				return &NestedRepositoryError{Dir: v.spec.Dir, Paths: []string{at}}
			}
			return nil
		}
		tracked := func() bool {
			_, there := slices.BinarySearchFunc(v.entries, rel, func(e index.Entry, rel string) int { return strings.Compare(string(e.Name), rel) })
			return there
		}
		if slices.ContainsFunc(v.untrackedFiles, func(f pathStat) bool { return f.name == rel }) || tracked() {
			return nil
		}
		return withSecrets.addUntrackedPath(rel)
	})
	v.untrackedFiles = withSecrets.untrackedFiles
	v.leftOut = slices.DeleteFunc(v.leftOut, func(l LeftOut) bool {
		return slices.ContainsFunc(v.untrackedFiles, func(f pathStat) bool { return f.name == l.Path })
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ignoredPaths returns which of some untracked paths git ignores.
func (v *worktreeScan) ignoredPaths(ctx context.Context, names []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if len(names) == 0 || v.spec.IncludeIgnored {
		return ignored, nil
	}
	const here = "./" // otherwise a leading colon would be pathspec magic
	var question strings.Builder
	for _, name := range names {
		// Without the trailing slash: for a directory git would read the .gitignore in it, and block if that is a
		// FIFO.
		question.WriteString(here + strings.TrimSuffix(name, "/") + "\x00")
	}
	markIgnored := func(name string) {
		name = strings.TrimPrefix(name, here)
		ignored[name], ignored[name+"/"] = true, true
	}
	if process := v.ignoreProcess(); process != nil {
		writing := proc.Async(func() (struct{}, error) {
			return struct{}{}, process.WriteString(question.String())
		})
		defer func() {
			_, _ = process.Close()
			_, _ = writing() // the answers are already complete, or an error is returned
		}()
		for range names {
			var answer [4]string // source file, line number and pattern of the rule, and the path
			for i := range answer {
				text, err := process.Stdout.ReadString(0)
				if err != nil {
					return nil, fmt.Errorf("git check-ignore: %w", cmp.Or(context.Cause(ctx), err))
				}
				answer[i] = strings.TrimSuffix(text, "\x00")
			}
			if pattern := answer[2]; pattern != "" && pattern[0] != '!' {
				markIgnored(answer[3])
			}
		}
		_, err := writing()
		return ignored, err
	}
	p, err := v.scratch()
	if err != nil {
		return nil, err
	}
	p.Stdin = question.String()
	out, err := v.repo.RunRead(ctx, p, checkIgnoreArgs...)
	if err != nil && !git.ExitedWith(err, 1) {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		markIgnored(name)
	}
	return ignored, nil
}

// checkIgnoreArgs is the git command that reads paths and writes the ignored ones.
var checkIgnoreArgs = []string{"check-ignore", "--no-index", "-z", "--stdin"}

// startCheckIgnore makes the scan start "git check-ignore" at the first untracked path, so that it is running by the
// time all of them are known. The returned function ends it.
func (v *worktreeScan) startCheckIgnore(ctx context.Context) (done func()) {
	var starting func() (*proc.Coprocess, error)
	v.onUntracked = sync.OnceFunc(func() {
		if v.spec.IncludeIgnored {
			return
		}
		p, err := v.scratch()
		if err != nil {
			return // reported where the scratch directory is needed next
		}
		p.Env = append(slices.Clone(p.Env), "GIT_OPTIONAL_LOCKS=0")
		starting = proc.Async(func() (*proc.Coprocess, error) {
			return v.repo.StartInteractive(ctx, p, append(slices.Clone(checkIgnoreArgs), "--verbose", "--non-matching")...)
		})
	})
	v.ignoreProcess = func() *proc.Coprocess {
		if starting == nil {
			return nil
		}
		process, err := starting()
		if starting = nil; err != nil {
			return nil // ignoredPaths then starts another one, which says why
		}
		return process // it can be asked only once
	}
	return func() {
		if process := v.ignoreProcess(); process != nil {
			_, _ = process.Close()
		}
	}
}

// listUntracked lists the files in directories without any index entry. A repository among them is listed as a
// directory, with a trailing slash.
func (v *worktreeScan) listUntracked(ctx context.Context) ([]string, error) {
	if len(v.untrackedDirs) == 0 {
		return nil, nil
	}
	p, err := v.scratch()
	if err != nil {
		return nil, err
	}
	p.Env = append(slices.Clone(p.Env), "GIT_LITERAL_PATHSPECS=1", "GIT_INDEX_FILE="+filepath.Join(p.GitDir, "none"))
	args := []string{"ls-files", "--others", "-z"}
	if !v.spec.IncludeIgnored {
		args = append(args, "--exclude-standard")
	}
	const most = 64 << 10 // bytes of paths per command, as they are arguments
	var all []string
	for left := v.untrackedDirs; len(left) > 0; {
		n, size := 1, len(left[0])
		for n < len(left) && size+len(left[n]) < most {
			size += len(left[n]) + 1
			n++
		}
		out, err := v.repo.RunRead(ctx, p, slices.Concat(args, []string{"--"}, left[:n])...)
		left = left[n:]
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if name != "" {
				all = append(all, name)
			}
		}
	}
	return all, nil
}
