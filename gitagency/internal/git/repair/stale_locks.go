// Package repair finds and removes leftovers of killed gits (lock files, orphan reflogs) and restores damaged worktree
// entries. It acts only when told to. A lock may be in use as long as a git runs: callers ask RunningGit, or know
// that the lock is their own.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// RemoveLockIfIdle removes a lock unless a git is running in any of the worktrees.
func RemoveLockIfIdle(r *git.Repo, path string, seen fs.FileInfo) error {
	entries, err := worktree.Entries(r)
	if err != nil {
		return err
	}
	var trees []string
	for _, e := range entries {
		trees = append(trees, e.Path)
	}
	if RunningGit(r, trees, []string{path}) != "" {
		return nil
	}
	rel, err := filepath.Rel(r.CommonDir, path)
	if err != nil {
		return err
	}
	return RemoveLockFile(r, LockFile{RelPath: rel, info: seen})
}

// RemoveAbandonedLock removes the lock file of a ref that a killed git left. The caller holds the repository lock, so
// that it belongs to no live process of ours; a running git of the user is given time to finish, and keeps its lock.
func RemoveAbandonedLock(ctx context.Context, r *git.Repo, path string) error {
	seen, err := os.Lstat(path)
	if err != nil || !seen.Mode().IsRegular() {
		return nil // git reports an unusual lock itself
	}
	gone := func() bool {
		now, err := os.Lstat(path)
		return err != nil || !os.SameFile(seen, now)
	}
	if err := r.LockWait.Until(ctx, gone); err != nil || gone() {
		return err
	}
	if err := RemoveLockIfIdle(r, path, seen); err != nil && !gone() {
		return err
	}
	return nil
}

// RemoveStaleRefLock removes a ref lock younger than since that holds content, or that stays empty or a part of content
// for 500 ms. A lock with other content belongs to a running process and stays.
func RemoveStaleRefLock(path, content string, since time.Time) error {
	const patience, pause = 500 * time.Millisecond, 10 * time.Millisecond
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since) {
		return nil
	}
	for began := time.Now(); ; time.Sleep(pause) {
		data, err := durable.ReadFile(path, 1<<10)
		now, statErr := os.Lstat(path)
		switch {
		case err != nil || statErr != nil || !os.SameFile(fi, now):
			return nil // replaced: another process is running
		case content != "" && strings.TrimSuffix(string(data), "\n") == content:
			return os.Remove(path)
		case len(data) > 0 && !strings.HasPrefix(content, string(data)):
			return nil
		case time.Since(began) > patience:
			return os.Remove(path)
		}
	}
}

// RunningGit describes a running git process that works in this repository; empty when there is none. Children of this
// process do not count: the caller knows what they lock. While a git runs, lock files may be in use, and a worktree entry
// that looks damaged may be incomplete. Call it after evidence, such files, was seen: a process that starts later cannot have made them.
// trees are the worktrees of the repository. Where processes cannot be listed, it assumes that there is one.
func RunningGit(r *git.Repo, trees, evidence []string) (who string) {
	gits, ok := proc.ListProcesses(func(name string) bool {
		return name == "git" || strings.HasPrefix(name, "git-") && !strings.HasPrefix(name, "git-agency") // ours are found by their lock
	})
	if !ok {
		return "possibly a git process"
	}
	var dirs []fs.FileInfo
	for _, dir := range append([]string{r.CommonDir, r.TopLevel}, trees...) {
		if fi, err := os.Stat(dir); err == nil {
			dirs = append(dirs, fi)
		}
	}
	for _, p := range gits {
		switch {
		case p.PID == os.Getppid() && !r.InHook: // "git agency …", waiting for us
		case p.Parent == os.Getpid():
		case p.CwdHidden && ownsAny(p.UID, evidence): // only a guess; the search goes on for a process that can be inspected
			who = fmt.Sprintf("pid %d (%s)", p.PID, commandLine(p.Args))
		case !p.CwdHidden && p.UsesDirs(dirs, pathArguments(p)...):
			return fmt.Sprintf("pid %d (%s)", p.PID, commandLine(p.Args))
		}
	}
	return who
}

// commandLine returns the beginning of a process's command line, for messages.
func commandLine(args []string) string {
	if len(args) == 0 {
		return "git"
	}
	return strings.Join(append([]string{filepath.Base(args[0])}, args[1:min(len(args), 4)]...), " ")
}

// ownsAny reports whether a user owns one of these files. For a process that we may not inspect this is the only
// clue.
func ownsAny(uid uint32, files []string) bool {
	return slices.ContainsFunc(files, func(path string) bool {
		fi, err := os.Lstat(path)
		if err != nil {
			return false // gone, so it is no evidence
		}
		stat, ok := fi.Sys().(*syscall.Stat_t)
		return !ok || stat.Uid == uid
	})
}

// pathArguments lists the arguments and environment values of a process that may be paths: git can be pointed at a
// repository other than that of its working directory.
func pathArguments(p proc.Process) []string {
	const most = 64 // options with paths come first
	var paths []string
	for _, word := range p.Args[:min(len(p.Args), most)] {
		_, value, option := strings.Cut(word, "=")
		if paths = append(paths, word); option {
			paths = append(paths, value)
		}
	}
	for _, kv := range p.Env {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GIT_") && value != "" {
			paths = append(paths, value)
		}
	}
	return paths
}

// LockFile is a file of git with a fixed name that keeps other gits from working while it exists: a lock file, or the
// file that becomes packed-refs.
type LockFile struct {
	RelPath string // path relative to the common dir
	info    fs.FileInfo
}

// LockFiles lists git's lock files in the repository. A lock file is stale when no git runs; nothing in it says so.
func LockFiles(r *git.Repo) ([]LockFile, error) {
	var locks []LockFile
	add := func(rel string) {
		isLock := strings.HasSuffix(rel, ".lock") || slices.Contains(git.PackedRefsLocks, rel)
		if fi, err := os.Lstat(filepath.Join(r.CommonDir, rel)); err == nil && isLock {
			locks = append(locks, LockFile{rel, fi})
		}
	}
	shallow := []string{".", "info", "objects", "objects/info", "objects/info/commit-graphs", "objects/pack", "objects/pack/multi-pack-index.d"}
	deep := []string{"refs", "logs", "worktrees"}
	for _, dir := range shallow {
		entries, err := os.ReadDir(filepath.Join(r.CommonDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() {
				add(filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, dir := range deep {
		if err := walkFiles(r, dir, add); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

// RemoveLockFile removes a lock file that LockFiles listed and that the caller knows to be stale. It refuses one that
// was taken again since.
func RemoveLockFile(r *git.Repo, l LockFile) error {
	path := filepath.Join(r.CommonDir, l.RelPath)
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !os.SameFile(now, l.info) || !now.ModTime().Equal(l.info.ModTime()) {
		return fmt.Errorf("%s was locked by another git process meanwhile", path)
	}
	return durable.Remove(path)
}

// BlockingRef returns the path of a ref that is neither a file nor a symlink, such as a pipe, on which git would
// block; empty when there is none.
func BlockingRef(r *git.Repo) (path string, err error) {
	root := filepath.Join(r.CommonDir, "refs")
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0 {
			path = at
			return fs.SkipAll
		}
		return nil // listing errors are reported by the code that reads the refs
	})
	return path, err
}

// walkFiles calls found for every regular file below a directory of the common dir, with its path relative to the
// common dir.
func walkFiles(r *git.Repo, dir string, found func(rel string)) error {
	root := filepath.Join(r.CommonDir, dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // deleted since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular():
			rel, err := filepath.Rel(r.CommonDir, path)
			if err != nil {
				return err
			}
			found(rel)
		}
		return nil
	})
	return err
}
