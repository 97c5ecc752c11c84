package merge

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// What is captured of a worktree is what git would add there; and what git sees as changed is seen.
func TestACaptureHoldsWhatGitWouldAddInThatWorktree(t *testing.T) {
	t.Parallel()
	repotest.ForEveryWorktreeSetting(t, func(t *testing.T, o *gittest.Worktrees, repo *git.Repo, trusted bool) {
		for name, tree := range map[string]string{"one": o.One, "other": o.Other} {
			o.WriteIn(tree, "a.txt", "a\r\n") // nothing but line ends
			o.WriteIn(tree, "new.txt", "new\r\nlines\r\n")
			s := git.WorktreeSpec{Name: name, Dir: tree, Branch: "refs/heads/" + name, Author: object.Identity{Name: "x", Email: "x@x"}, Message: "x\n", TrustConfig: trusted}
			got, err := snapshot.Capture(t.Context(), repo, s)
			o.Must(err)
			m, err := NewMerger(repo, got.Commit)
			o.Must(err)
			looked, err := m.Inspect(t.Context(), s)
			o.Must(err)
			o.Must(m.Close())
			o.GitIn(tree, "add", "-A")
			want := o.GitIn(tree, "write-tree")
			if tree := o.Git("rev-parse", got.Commit+"^{tree}"); tree != want || looked.DiskTree != want {
				t.Errorf("%s: captured %q, looked like %q; git has %q", name, o.Files(tree), o.Files(looked.DiskTree), o.Files(want))
			}
		}
	})
}
