package update

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// An update writes files with the same line endings as git checkout in that worktree.
func TestUpdateUsesWorktreeConfig(t *testing.T) {
	t.Parallel()
	repotest.ForEveryWorktreeSetting(t, func(t *testing.T, o *gittest.Worktrees, repo *git.Repo, trusted bool) {
		to := commitOnMain(o.Fixture, func(tree string) {
			o.WriteIn(tree, "a.txt", "changed\nlines\n")
			o.WriteIn(tree, "new.txt", "new\nlines\n")
		})
		for _, branch := range []string{"one", "other", "main"} {
			a := Update{Branch: "refs/heads/" + branch, Old: o.Git("rev-parse", branch), New: to, Reason: "land", Trusted: trusted}
			var err error
			a.GitDir, a.Worktree, err = CheckedOutIn(t.Context(), repo, a.Branch)
			o.Must(err)
			for _, file := range []string{"a.txt", "dir/b.txt"} { // written again with the new config
				o.Must(os.Remove(filepath.Join(a.Worktree, file)))
			}
			o.GitIn(a.Worktree, "checkout", "-q", "--", ".")
			m, err := merge.NewMerger(repo, to)
			o.Must(err)
			lab := &updateLab{Fixture: o.Fixture, repo: repo, worktree: a.Worktree, spec: a, contentMerger: m}
			o.Must(lab.runAll())
			o.Must(m.Close())
			for _, file := range []string{"a.txt", "new.txt"} {
				got, err := os.ReadFile(filepath.Join(a.Worktree, file))
				o.Must(err)
				o.Must(os.Remove(filepath.Join(a.Worktree, file)))
				o.GitIn(a.Worktree, "checkout", "-q", "--", file)
				want, err := os.ReadFile(filepath.Join(a.Worktree, file))
				o.Must(err)
				if string(got) != string(want) {
					t.Errorf("%s on %s: %q, git writes %q", file, branch, got, want)
				}
			}
		}
	})
}

// Recover restores a torn file according to the config of the file's worktree, from whichever worktree the repository was
// opened: the config decides what the new file would have contained.
func TestRecoverUsesWorktreeConfig(t *testing.T) {
	t.Parallel()
	repotest.ForEveryWorktreeSetting(t, func(t *testing.T, o *gittest.Worktrees, repo *git.Repo, trusted bool) {
		file := filepath.Join(o.One, "a.txt")
		o.Must(os.Remove(file))
		o.GitIn(o.One, "checkout", "-q", "--", ".") // written again with the new config
		before, err := os.ReadFile(file)
		o.Must(err)
		lab := &updateLab{Fixture: o.Fixture, repo: repotest.OpenRepoIn(o.Fixture, o.One), worktree: o.One, spec: Update{
			Branch: "refs/heads/one", Old: o.Git("rev-parse", "one"), New: commitOnMain(o.Fixture, func(tree string) { o.WriteIn(tree, "a.txt", "changed\nlines\n") }),
			Reason: "land", GitDir: o.GitDirOfOne, Worktree: o.One, Trusted: trusted,
		}}
		lab.killAt("commit")
		o.Must(os.Truncate(file, 10))
		if done, err := Recover(t.Context(), repo, lab.spec); done || err != nil {
			t.Errorf("%t, %v", done, err)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("a.txt is %q and was %q: %v", after, before, err)
		}
	})
}
