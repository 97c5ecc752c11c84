package worktree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Entry is the administrative directory of one linked worktree, read without git: "git worktree list" ignores
// some damage silently, and fails on other.
type Entry struct {
	Worktree
	Name          string   // name of its directory
	BadFiles      []string // files that git needs and that are missing, empty or invalid: gitdir, commondir, HEAD
	WasCheckedOut bool     // an index or reflog shows that something was checked out there once
}

// Entries lists the administrative directories of the linked worktrees, and of those that git does not list.
func Entries(r *git.Repo) ([]Entry, error) {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var entries []Entry
	for _, f := range found {
		if f.IsDir() {
			entries = append(entries, ReadEntry(r, f.Name()))
		}
	}
	unlisted, err := r.UnlistedWorktrees()
	for _, name := range unlisted {
		entries = append(entries, ReadEntry(r, name))
	}
	return entries, err
}

// ReadEntry reads one administrative directory and checks the files that git needs.
func ReadEntry(r *git.Repo, name string) Entry {
	dir := r.AdminDir(name)
	e := Entry{Name: name}
	e.Worktree, _ = readAdminEntry(dir)
	if e.Path == "" {
		e.BadFiles = append(e.BadFiles, "gitdir")
	}
	if !pointsToCommonDir(r, dir) {
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
func pointsToCommonDir(r *git.Repo, dir string) bool {
	data, err := git.ReadSmallFile(dir, "commondir")
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
