package git

import (
	"context"
	"os"
	"path/filepath"

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

// AdminDir returns the administrative directory of a worktree: <common dir>/worktrees/<name>, or that of an unlisted worktree.
// Git names it after the last component of the path that "worktree add" was given.
func (r *Repo) AdminDir(name string) string {
	if dir := r.UnlistedAdminDir(name); durable.IsDir(dir) {
		return dir
	}
	return r.CommonDir + "/worktrees/" + name // filepath.Join would show in a listing of a thousand worktrees
}

// UnlistedAdminDir returns the administrative directory of a worktree that git does not list, because its files do not exist
// outside of the walls around it. To git it is a git directory as any other.
func (r *Repo) UnlistedAdminDir(name string) string {
	return r.CommonDir + "/" + unlistedEntries + "/" + name
}

// unlistedEntries is the path of the directory of these, below the common directory.
const unlistedEntries = "agency/worktrees"

// UnlistedWorktrees returns the names of the worktrees that git does not list.
func (r *Repo) UnlistedWorktrees() ([]string, error) {
	entries, err := os.ReadDir(r.UnlistedAdminDir(""))
	if err != nil && !IsNotExist(err) {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// ReadSmallFile reads a one-line file of a git directory or a worktree, with a size limit and without blocking: an
// agent working in the worktree can have put anything there.
func ReadSmallFile(dir, name string) ([]byte, error) {
	return durable.ReadFile(filepath.Join(dir, name), maxSmallFile)
}

const maxSmallFile = 1 << 16
