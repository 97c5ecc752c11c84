package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// WorktreeEntry is the administrative directory of one linked worktree, read without git: "git worktree list" ignores
// some damage silently, and fails on other.
type WorktreeEntry struct {
	Worktree
	Name          string   // name of its directory below <common dir>/worktrees
	BadFiles      []string // files that git needs and that are missing, empty or invalid: gitdir, commondir, HEAD
	WasCheckedOut bool     // an index or reflog shows that something was checked out there once
}

// WorktreeEntries lists the administrative directories of the linked worktrees.
func (r *Repo) WorktreeEntries() ([]WorktreeEntry, error) {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var entries []WorktreeEntry
	for _, f := range found {
		if f.IsDir() {
			entries = append(entries, r.ReadWorktreeEntry(f.Name()))
		}
	}
	return entries, nil
}

// ReadWorktreeEntry reads one administrative directory and checks the files that git needs.
func (r *Repo) ReadWorktreeEntry(name string) WorktreeEntry {
	dir := r.AdminDir(name)
	e := WorktreeEntry{Name: name}
	e.Worktree, _ = readAdminEntry(dir)
	if e.Path == "" {
		e.BadFiles = append(e.BadFiles, "gitdir")
	}
	if !r.pointsToCommonDir(dir) {
		e.BadFiles = append(e.BadFiles, "commondir")
	}
	if !object.IsOID(e.Head) && !strings.HasPrefix(e.Branch, "refs/") {
		e.BadFiles = append(e.BadFiles, "HEAD")
	}
	for _, sign := range []string{"index", "logs"} {
		if _, err := os.Lstat(filepath.Join(dir, sign)); err == nil {
			e.WasCheckedOut = true
		}
	}
	return e
}

// pointsToCommonDir reports whether the commondir file of an entry points at this repository. Git also reads its
// configuration from where that file points.
func (r *Repo) pointsToCommonDir(dir string) bool {
	data, err := ReadSmallFile(dir, "commondir")
	path := strings.TrimRight(string(data), "\r\n")
	if err != nil || path == "" {
		return false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := os.Stat(r.CommonDir)
	return err == nil && os.SameFile(there, here)
}

// DotGitTarget returns the git directory that the .git of a worktree points at; empty when it points at none. For a
// main worktree that is its own .git directory.
func DotGitTarget(tree string) (string, error) {
	dotGit := filepath.Join(tree, ".git")
	fi, err := os.Lstat(dotGit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case fi.IsDir():
		return dotGit, nil
	}
	data, err := ReadSmallFile(tree, ".git")
	if err != nil {
		return "", err
	}
	return parseDotGit(tree, data), nil
}

// parseDotGit reads a .git file as git does; it returns "" when git would not accept it.
func parseDotGit(tree string, data []byte) string {
	path, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	switch {
	case !ok || path == "":
		return ""
	case !filepath.IsAbs(path):
		return filepath.Join(tree, path)
	}
	return path
}
