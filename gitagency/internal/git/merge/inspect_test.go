package merge

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// Capture and Inspect write the same tree as git add in that worktree, according to the worktree's own config.
func TestInspectAndCaptureUseWorktreeConfig(t *testing.T) {
	t.Parallel()
	repotest.ForEveryWorktreeSetting(t, func(t *testing.T, o *gittest.Worktrees, repo *git.Repo, trusted bool) {
		for name, tree := range map[string]string{"one": o.One, "other": o.Other} {
			o.WriteIn(tree, "a.txt", "a\r\n") // only the line endings differ
			o.WriteIn(tree, "new.txt", "new\r\nlines\r\n")
			s := git.WorktreeSpec{Name: name, Dir: tree, Branch: "refs/heads/" + name, Author: object.Identity{Name: "x", Email: "x@x"}, Message: "x\n", TrustConfig: trusted}
			got, err := snapshot.Capture(t.Context(), repo, s)
			o.Must(err)
			m, err := NewMerger(repo, got.Commit)
			o.Must(err)
			report, err := m.Inspect(t.Context(), s)
			o.Must(err)
			o.Must(m.Close())
			o.GitIn(tree, "add", "-A")
			want := o.GitIn(tree, "write-tree")
			if tree := o.Git("rev-parse", got.Commit+"^{tree}"); tree != want || report.DiskTree != want {
				t.Errorf("%s: captured %q, inspected %q; git adds %q", name, o.Files(tree), o.Files(report.DiskTree), o.Files(want))
			}
		}
	})
}
