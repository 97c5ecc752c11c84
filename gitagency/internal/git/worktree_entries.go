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

	"github.com/git-agency/git-agency/gitagency/internal/durable"
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
			entries = append(entries, r.readEntry(f.Name()))
		}
	}
	return entries, nil
}

// readEntry reads one administrative directory and checks the files that git needs.
func (r *Repo) readEntry(name string) WorktreeEntry {
	dir := r.AdminDir(name)
	e := WorktreeEntry{Name: name}
	e.Worktree, _ = readAdminEntry(dir)
	if e.Path == "" {
		e.BadFiles = append(e.BadFiles, "gitdir")
	}
	if !r.pointsToCommonDir(dir) {
		e.BadFiles = append(e.BadFiles, "commondir")
	}
	if !isOID(e.Head) && !strings.HasPrefix(e.Branch, "refs/") {
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
	data, err := readSmallFile(dir, "commondir")
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
	data, err := readSmallFile(tree, ".git")
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

// RelinkWorktree connects a worktree with its entry again: it writes the missing or invalid files of the entry, and
// the .git of the worktree. Valid files stay, but for the two paths. Without an index, a new one is made from the
// commit that HEAD is at.
func (r *Repo) RelinkWorktree(ctx context.Context, w Registration) error {
	dir := r.AdminDir(w.Name)
	if fi, err := os.Lstat(filepath.Join(w.Tree, ".git")); err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", filepath.Join(w.Tree, ".git"))
	}
	if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir) // a symlink, to a place that we must not write to
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	flaws := r.readEntry(w.Name).BadFiles
	for name, content := range map[string]string{"commondir": "../..", "HEAD": "ref: " + w.Branch} {
		if !slices.Contains(flaws, name) {
			continue // a valid HEAD is the user's choice
		}
		if err := durable.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "index")); errors.Is(err, fs.ErrNotExist) {
		if err := r.createEntryIndex(ctx, w, dir); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(w.Tree, ".git"), []byte("gitdir: "+dir+"\n"), 0o644); err != nil {
		return err
	}
	// gitdir comes last, so that a process that finds it finds a complete entry.
	return r.WriteEntryGitdir(w.Name, w.Tree)
}

// WriteEntryGitdir writes the path of a worktree into its entry.
func (r *Repo) WriteEntryGitdir(name, tree string) error {
	return durable.WriteFile(filepath.Join(r.AdminDir(name), "gitdir"), []byte(filepath.Join(tree, ".git")+"\n"), 0o644)
}

// createEntryIndex writes an index of the commit that HEAD is at into an entry. Git runs on the common directory and
// not on the entry: an agent in the worktree can have written a configuration there.
func (r *Repo) createEntryIndex(ctx context.Context, w Registration, dir string) error {
	head, _, err := r.headAndBranch(ctx, WorktreeSpec{Name: w.Name, Branch: w.Branch})
	if err != nil || head == "" {
		return err
	}
	_, err = r.runWrite(ctx, runOptions{env: []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "index")}}, "read-tree", head)
	return err
}

// RepairEntry makes a worktree entry that is not ours readable for git again, as far as the lost content can be
// known. An entry in which nothing was ever checked out is removed.
func (r *Repo) RepairEntry(e WorktreeEntry) error {
	if !e.WasCheckedOut {
		return r.RemoveAdminDir(e.Name)
	}
	for _, flaw := range e.BadFiles {
		content, known := r.repairedContent(e, flaw)
		if !known {
			continue
		}
		if err := durable.WriteFile(filepath.Join(r.AdminDir(e.Name), flaw), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// UnrepairableFiles lists the bad files of an entry that only its owner can repair: their content cannot be known any
// more.
func (r *Repo) UnrepairableFiles(e WorktreeEntry) []string {
	return slices.DeleteFunc(slices.Clone(e.BadFiles), func(flaw string) bool {
		_, known := r.repairedContent(e, flaw)
		return known || !e.WasCheckedOut
	})
}

// repairedContent returns the content that a bad file of an entry must have had.
func (r *Repo) repairedContent(e WorktreeEntry, flaw string) (content string, known bool) {
	switch flaw {
	case "commondir":
		return "../..", true
	case "HEAD":
		if log := r.reflogCommits(WorktreeSpec{Name: e.Name}); len(log) > 0 {
			return log[0], true
		}
	}
	return "", false
}

// UnlockWorktree removes the "locked" file that "git worktree add" leaves when it is killed.
func (r *Repo) UnlockWorktree(e WorktreeEntry) error {
	return durable.Remove(filepath.Join(r.AdminDir(e.Name), "locked"))
}

// LastLoggedCommit returns the newest existing commit in the reflog of a worktree's HEAD; empty when there is none.
func (r *Repo) LastLoggedCommit(ctx context.Context, name string) (string, error) {
	log := r.reflogCommits(WorktreeSpec{Name: name})
	for i := range log {
		log[i] += "^{commit}"
	}
	if len(log) == 0 {
		return "", nil
	}
	found, err := r.Lookup(ctx, log...)
	if err != nil {
		return "", err
	}
	for _, o := range found {
		if !o.Missing() {
			return o.OID, nil
		}
	}
	return "", nil
}
