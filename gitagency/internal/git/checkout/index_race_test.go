package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// TestFillWhileIndexIsReplaced replaces the index of the source just before git is asked about it, by one with other attributes.
func TestFillWhileIndexIsReplaced(t *testing.T) {
	for command, c := range map[string]struct{ first, then string }{
		"diff-index": {"HEAD~1", "HEAD"},
		"check-attr": {"HEAD", "HEAD~1"},
	} {
		t.Run(command, func(t *testing.T) {
			l := newSource(t)
			l.Write(".gitattributes", "plain eol=crlf\n")
			commit := l.Commit("attributes")
			other := filepath.Join(t.TempDir(), "index")
			l.Git("read-tree", c.then)
			l.Must(os.Rename(filepath.Join(l.Root, ".git/index"), other))
			l.Git("read-tree", c.first)

			program, err := exec.LookPath("git")
			l.Must(err)
			bin := t.TempDir()
			script := "#!/bin/sh\ncase \" $* \" in *' " + command + " '*) mv '" + other + "' '" + l.Root + "/.git/index';; esac\nexec '" + program + "' \"$@\"\n"
			l.Must(os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755))
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			repo := repotest.OpenRepo(l)
			byGit := register(l, repo, "20260101000000-aaaa", commit)
			l.Must(worktree.Checkout(t.Context(), repo, byGit, commit, false))
			filled := register(l, repo, "20260101000000-bbbb", commit)
			err = Fill(t.Context(), repo, requestFor(l, filled, commit, HashCache{}))
			l.Must(err)
			if _, err := os.Lstat(other); err == nil {
				t.Error("git " + command + " was not run")
			}
			gittest.RequireSame(t, "the files", describe(t, filled.Tree), describe(t, byGit.Tree))
		})
	}
}
