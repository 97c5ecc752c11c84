package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// DamagedEntry is a damaged entry of <common dir>/worktrees, such as a killed git leaves.
type DamagedEntry struct {
	Name    string
	Path    string
	Problem string // e.g. "commondir is empty"
}

func (p DamagedEntry) String() string { return fmt.Sprintf("%s: %s", p.Path, p.Problem) }

// RegisteredTree returns the path of a linked worktree that its entry records; empty when there is none.
func RegisteredTree(r *git.Repo, name string) string {
	data, err := git.ReadSmallFile(r.AdminDir(name), "gitdir")
	if err != nil {
		return ""
	}
	return treeFromGitdir(r.AdminDir(name), data)
}

// RegisteredTrees lists every entry, damaged and unlisted ones included, with the path of the worktree if the entry records
// one.
func RegisteredTrees(r *git.Repo) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	unlisted, err := r.UnlistedWorktrees()
	if err != nil {
		return nil, err
	}
	registered := map[string]string{}
	for _, e := range entries {
		registered[e.Name()] = RegisteredTree(r, e.Name())
	}
	for _, name := range unlisted {
		registered[name] = RegisteredTree(r, name)
	}
	return registered, nil
}

// treeFromGitdir returns the worktree that the content of an entry's gitdir file points at. Newer git can write it
// relative to the entry.
func treeFromGitdir(dir string, gitdir []byte) string {
	path := strings.TrimSuffix(string(gitdir), "\n")
	switch {
	case path == "":
		return ""
	case !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	}
	return filepath.Dir(path)
}

// ListWithoutGit lists the worktrees of the repository by reading the entries of <common dir>/worktrees, but for those that skip
// names; skip may be nil. The listing has no commits for entries on a branch.
func ListWithoutGit(r *git.Repo, skip func(name string) bool) (Listing, error) {
	listing := Listing{Worktrees: []Worktree{mainWorktree(r)}}
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Listing{}, err
	}
	for _, e := range entries {
		if skip != nil && skip(e.Name()) {
			continue
		}
		tree, what := readAdminEntry(r.AdminDir(e.Name()))
		if what != "" {
			listing.Damaged = append(listing.Damaged, DamagedEntry{Name: e.Name(), Path: r.AdminDir(e.Name()), Problem: what})
		}
		if tree.Path != "" {
			listing.Worktrees = append(listing.Worktrees, tree)
		}
	}
	FixMainPath(r, listing.Worktrees)
	return listing, nil
}

func mainWorktree(r *git.Repo) Worktree {
	main := Worktree{Path: strings.TrimSuffix(r.CommonDir, "/.git")}
	if main.Bare = r.Config.Value("core.bare") == "true"; !main.Bare {
		head, _ := git.ReadHead(r.CommonDir) // an unreadable HEAD stays empty
		main.setHead(head)
	}
	return main
}

// readAdminEntry reads an administrative directory as far as possible; what names the problem if files that git needs
// are missing or empty.
func readAdminEntry(dir string) (w Worktree, what string) {
	for _, name := range []string{"gitdir", "commondir", "HEAD"} {
		data, err := git.ReadSmallFile(dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			what = name + " is missing"
		case err != nil:
			what = name + " cannot be read"
		case strings.TrimSpace(string(data)) == "":
			what = name + " is empty"
		case name == "gitdir":
			w.Path = treeFromGitdir(dir, data)
		case name == "HEAD":
			w.setHead(git.ParseHead(data))
		}
	}
	if reason, err := git.ReadSmallFile(dir, "locked"); err == nil {
		w.Locked, w.LockReason = true, strings.TrimSpace(string(reason))
	}
	return w, what
}

// RemoveAdminDir unregisters a linked worktree, in whatever state its entry is: "git worktree remove" refuses every
// state that a killed "worktree add" leaves. The entry is renamed away first, because one that is half removed would
// break the listing of all the others.
func RemoveAdminDir(r *git.Repo, name string) error {
	if err := moveAdminDirAway(r, name); err != nil {
		return err
	}
	return RemoveUnregistered(r, name)
}

// RemoveUnregistered deletes the renamed administrative directory of an unregistered worktree.
func RemoveUnregistered(r *git.Repo, name string) error {
	return durable.RemoveTree(UnregisteredDir(r, name))
}

// UnregisteredDir returns the path that moveAdminDirAway renames an administrative directory to.
func UnregisteredDir(r *git.Repo, name string) string {
	return filepath.Join(r.AgencyDir(), git.RemovedPrefix+filepath.Base(name))
}

// moveAdminDirAway renames the administrative directory of a worktree to a place where git does not look.
func moveAdminDirAway(r *git.Repo, name string) error {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return fmt.Errorf("%q is not the name of a worktree entry", name)
	}
	away := UnregisteredDir(r, name)
	if err := os.MkdirAll(filepath.Dir(away), 0o777); err != nil {
		return err
	}
	if err := durable.RemoveTree(away); err != nil { // of an earlier attempt
		return err
	}
	err := os.Rename(r.AdminDir(name), away)
	if errors.Is(err, fs.ErrPermission) { // renaming a directory needs write permission on it
		if err := durable.RestoreOwnerPermissions(r.AdminDir(name)); err != nil {
			return err
		}
		err = os.Rename(r.AdminDir(name), away)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Git removes an empty worktrees directory too; one with other entries stays.
	_, _ = syscall.Rmdir(filepath.Join(r.CommonDir, "worktrees")), syscall.Rmdir(r.UnlistedAdminDir(""))
	return nil
}
