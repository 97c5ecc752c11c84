package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// IsGitDir reports whether a directory looks like a git directory: that of a repository, or of a linked worktree.
func IsGitDir(dir string) (bool, error) {
	for _, kind := range [][]string{{"HEAD", "objects", "refs"}, {"HEAD", "commondir"}} {
		all := true
		for _, name := range kind {
			_, err := os.Lstat(filepath.Join(dir, name))
			switch {
			case err != nil && IsNotExist(err):
				all = false
			case err != nil:
				return false, err
			}
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}

// HeadAndBranch returns the commits of HEAD and of the branch of a worktree.
func (r *Repo) HeadAndBranch(ctx context.Context, s WorktreeSpec) (head, branch string, err error) {
	return r.HeadAndBranchWith(s, func(names ...string) ([]Object, error) { return r.Lookup(ctx, names...) })
}

// HeadAndBranchWith is HeadAndBranch with a lookup function, such as that of a CatFile. Where HEAD leads to no commit, head
// is that of the branch, or else the base. Both are empty for a directory that is not a worktree.
func (r *Repo) HeadAndBranchWith(s WorktreeSpec, lookup func(names ...string) ([]Object, error)) (head, branch string, err error) {
	if s.IndexCache != "" {
		return "", "", nil
	}
	name, err := r.HeadRefOrCommit(s)
	if err != nil {
		return "", "", err
	}
	objects, err := lookup(name+"^{commit}", s.Branch, s.Base+"^{commit}")
	if err != nil {
		return "", "", err
	}
	for _, o := range objects { // HEAD may name a missing commit while the branch still exists
		if head == "" {
			head = o.OID
		}
	}
	return head, objects[1].OID, nil
}

// OperationIn returns the git command whose operation is in progress in a worktree's git directory, which is the command
// that continues or aborts it; empty: none.
func OperationIn(gitDir string) string {
	for _, sign := range []struct{ file, what string }{
		{"rebase-merge", "rebase"},
		{"rebase-apply/applying", "am"},
		{"rebase-apply", "rebase"},
		{"MERGE_HEAD", "merge"},
		{"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"},
		{"sequencer", "cherry-pick"},
		{"BISECT_START", "bisect"},
		{"BISECT_LOG", "bisect"},
	} {
		if _, err := os.Lstat(filepath.Join(gitDir, sign.file)); err == nil {
			return sign.what
		}
	}
	return ""
}

// WorktreeAdminDir returns the directory that a git in the worktree has as its git directory: the one in the overlay upper
// directory of a sandbox, if there is one, or else the real one.
func (r *Repo) WorktreeAdminDir(s WorktreeSpec) string {
	if own := overlay.OpaqueEntry(s.UpperDir, s.Name); own != "" {
		return own
	}
	return r.AdminDir(s.Name)
}

// DamagedEntry is a damaged entry of <common dir>/worktrees, such as a killed git leaves.
type DamagedEntry struct {
	Name    string
	Path    string
	Problem string // e.g. "commondir is empty"
}

func (p DamagedEntry) String() string { return fmt.Sprintf("%s: %s", p.Path, p.Problem) }

// AdminDir returns the administrative directory of a linked worktree, <common dir>/worktrees/<name>. Git names it
// after the last component of the path that "worktree add" was given.
func (r *Repo) AdminDir(name string) string {
	return filepath.Join(r.CommonDir, "worktrees", name)
}

// RegisteredTree returns the path of a linked worktree that its entry records; empty when there is none.
func (r *Repo) RegisteredTree(name string) string {
	data, err := ReadSmallFile(r.AdminDir(name), "gitdir")
	if err != nil {
		return ""
	}
	return treeFromGitdir(r.AdminDir(name), data)
}

// RegisteredTrees lists every entry of <common dir>/worktrees, damaged ones included, with the path of the worktree
// if the entry records one.
func (r *Repo) RegisteredTrees() (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	registered := map[string]string{}
	for _, e := range entries {
		registered[e.Name()] = r.RegisteredTree(e.Name())
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

// readWorktreeEntries reads the entries of <common dir>/worktrees without git.
func (r *Repo) readWorktreeEntries() (WorktreeList, error) {
	listing := WorktreeList{Worktrees: []Worktree{r.mainWorktree()}}
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return WorktreeList{}, err
	}
	for _, e := range entries {
		tree, what := readAdminEntry(r.AdminDir(e.Name()))
		if what != "" {
			listing.Damaged = append(listing.Damaged, DamagedEntry{Name: e.Name(), Path: r.AdminDir(e.Name()), Problem: what})
		}
		if tree.Path != "" {
			listing.Worktrees = append(listing.Worktrees, tree)
		}
	}
	r.FixMainWorktreePath(listing.Worktrees)
	return listing, nil
}

func (r *Repo) mainWorktree() Worktree {
	main := Worktree{Path: strings.TrimSuffix(r.CommonDir, "/.git")}
	if main.Bare = r.Config.Value("core.bare") == "true"; !main.Bare {
		_ = ReadHead(r.CommonDir, &main) // an unreadable HEAD stays empty
	}
	return main
}

// readAdminEntry reads an administrative directory as far as possible; what names the problem if files that git needs
// are missing or empty.
func readAdminEntry(dir string) (w Worktree, what string) {
	for _, name := range []string{"gitdir", "commondir", "HEAD"} {
		data, err := ReadSmallFile(dir, name)
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
			parseHead(data, &w)
		}
	}
	if reason, err := ReadSmallFile(dir, "locked"); err == nil {
		w.Locked, w.LockReason = true, strings.TrimSpace(string(reason))
	}
	return w, what
}

// ReadSmallFile reads a one-line file of a git directory or a worktree, with a size limit and without blocking: an
// agent working in the worktree can have put anything there.
func ReadSmallFile(dir, name string) ([]byte, error) {
	return durable.ReadFile(filepath.Join(dir, name), 1<<16)
}

func ReadHead(dir string, w *Worktree) error {
	data, err := ReadSmallFile(dir, "HEAD")
	if err == nil {
		parseHead(data, w)
	}
	return err
}

func parseHead(data []byte, w *Worktree) {
	head := strings.TrimSpace(string(data))
	if ref, ok := strings.CutPrefix(head, "ref:"); ok {
		w.Branch = strings.TrimSpace(ref)
		return
	}
	w.Head, w.Detached = head, head != ""
}

// RemoveAdminDir unregisters a linked worktree, in whatever state its entry is: "git worktree remove" refuses every
// state that a killed "worktree add" leaves. The entry is renamed away first, because one that is half removed would
// break the listing of all the others.
func (r *Repo) RemoveAdminDir(name string) error {
	if err := r.moveAdminDirAway(name); err != nil {
		return err
	}
	return r.RemoveUnregistered(name)
}

// RemoveUnregistered deletes the renamed administrative directory of an unregistered worktree.
func (r *Repo) RemoveUnregistered(name string) error {
	return durable.RemoveTree(r.UnregisteredDir(name))
}

// UnregisteredDir returns the path that moveAdminDirAway renames an administrative directory to.
func (r *Repo) UnregisteredDir(name string) string {
	return filepath.Join(r.AgencyDir(), removedPrefix+filepath.Base(name))
}

// moveAdminDirAway renames the administrative directory of a worktree to a place where git does not look.
func (r *Repo) moveAdminDirAway(name string) error {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return fmt.Errorf("%q is not the name of a worktree entry", name)
	}
	away := r.UnregisteredDir(name)
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
	_ = syscall.Rmdir(filepath.Join(r.CommonDir, "worktrees"))
	return nil
}
