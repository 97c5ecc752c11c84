package status

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
)

// HeadTarget returns the branch that HEAD of a worktree names, a full ref; git.DetachedHead when it names none; empty
// when HEAD cannot be read or names another ref.
func HeadTarget(r *git.Repo, s git.WorktreeSpec) string {
	head, err := git.ReadHead(r.AdminDir(s.Name))
	switch {
	case err != nil:
		return ""
	case head.Commit != "":
		return git.DetachedHead
	case strings.HasPrefix(head.Branch, "refs/heads/"):
		return head.Branch
	}
	return ""
}

// gitStateStamp changes when the git state of a worktree does: HEAD, the branch that HEAD names, the worktree's own
// branch, or the index.
type gitStateStamp struct{ head, headBranch, branch, index string }

// StampGitState returns the present gitStateStamp of a worktree; empty for a directory that is none.
func StampGitState(r *git.Repo, s git.WorktreeSpec) gitStateStamp {
	stamp := func(path string) string {
		fi, err := os.Lstat(path)
		if err != nil {
			return ""
		}
		return durable.StatFingerprint(fi)
	}
	if s.IndexCache != "" {
		return gitStateStamp{}
	}
	admin := r.AdminDir(s.Name)
	p := gitStateStamp{head: stamp(filepath.Join(admin, "HEAD")), branch: stamp(r.RefPath(s.Branch)), index: stamp(filepath.Join(admin, "index"))}
	if on := HeadTarget(r, s); on != "" && on != git.DetachedHead {
		p.headBranch = stamp(r.RefPath(on))
	}
	return p
}

// IsGitStateUnchanged reports whether HEAD, branches and index contents are unchanged. An index with another stamp is
// compared by content: git rewrites it even in commands that only read.
func IsGitStateUnchanged(r *git.Repo, s git.WorktreeSpec, x index.File, was gitStateStamp) bool {
	now := StampGitState(r, s)
	index := now.index
	if now.index = was.index; now != was {
		return false
	}
	if index == was.index {
		return true
	}
	y, _, err := readPlainIndex(r, s.Name, x.Format)
	return err == nil && x.Fingerprint() == y.Fingerprint()
}
