package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

func TestCaptureInBareRepositoryAndSubmodule(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	bare := filepath.Join(gittest.TempDir(t), "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	super := filepath.Join(gittest.TempDir(t), "super")
	l.Must(os.Mkdir(super, 0o755))
	l.GitIn(super, "init", "-q")
	l.GitIn(super, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", l.Root, "sub")
	for name, dir := range map[string]string{"bare": bare, "a submodule": filepath.Join(super, "sub")} {
		t.Run(name, func(t *testing.T) {
			here := *l
			here.T, here.Root = t, dir
			repo := repotest.OpenRepoIn(&here, dir)
			w := repotest.AddSandbox(&here, repo)
			here.WriteIn(w.Tree, "a.txt", "changed\n")
			here.WriteIn(w.Tree, "new", "n\n")
			got := captureSpec(&here, repo, repotest.SpecOf(&here, w))
			gittest.RequireSame(t, "captured", here.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n", "new": "100644 n\n"}))
		})
	}
}

func TestNewWorktreeInheritsSparseCheckout(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]string{{"--cone"}, {"--no-cone"}, {"--cone", "--sparse-index"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			l.Write("other/c.txt", "c\n")
			l.Commit("other")
			l.Git(slices.Concat([]string{"sparse-checkout", "set"}, mode, []string{"dir"})...)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			if gittest.Exists(filepath.Join(w.Tree, "other")) || !gittest.Exists(filepath.Join(w.Tree, "dir/b.txt")) {
				t.Error("the sparse patterns are not those of the main worktree")
			}
			repotest.RequireClean(l, w)
			if got := captureSpec(l, repo, repotest.SpecOf(l, w)); got.Dirty || got.Commit != got.BranchTip {
				t.Errorf("a clean worktree counts as changed: %+v", got)
			}
		})
	}
}

func TestWorktreeAddCaptureAndRemoveRunNoHooks(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(l *gittest.Fixture) string{
		"in .git/hooks": func(l *gittest.Fixture) string { return filepath.Join(l.Root, ".git/hooks") },
		"core.hooksPath in the user's config": func(l *gittest.Fixture) string {
			dir := filepath.Join(l.T.TempDir(), "hooks")
			l.ConfigureGlobal("core.hooksPath", dir)
			return dir
		},
		"core.hooksPath in the repository's config, in the worktree": func(l *gittest.Fixture) string {
			l.Git("config", "core.hooksPath", "githooks")
			return filepath.Join(l.Root, "githooks")
		},
		"core.hooksPath in the environment": func(l *gittest.Fixture) string {
			dir := filepath.Join(l.T.TempDir(), "hooks")
			l.Env = append(l.Env, "GIT_CONFIG_PARAMETERS='core.hooksPath'='"+dir+"'", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0="+dir)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			dir := place(l)
			witness := filepath.Join(t.TempDir(), "ran")
			for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "pre-auto-gc"} {
				l.WriteIn(dir, hook, "#!/bin/sh\necho "+hook+" >>'"+witness+"'\nexit 1\n")
				l.Must(os.Chmod(filepath.Join(dir, hook), 0o755))
			}
			if strings.HasPrefix(dir, l.Root+"/githooks") { // so that the new worktree has the hooks as well
				l.Git("-c", "core.hooksPath=/dev/null", "add", "-A")
				l.Git("-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "hooks")
			}
			if _, err := l.TryGit(l.Root, "update-ref", "refs/heads/probe", "HEAD"); err == nil || !gittest.Exists(witness) {
				t.Fatal("git does not run the hooks; the test is void")
			}
			l.Must(os.Remove(witness))

			repo := repotest.OpenRepo(l)
			head := l.Git("rev-parse", "HEAD")
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, "new", "n\n")
			got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
			l.Must(err)
			l.Must(repo.CreateRef(t.Context(), "refs/agency/trash/x", got.Commit, "keep"))
			l.Must(repo.MoveRef(t.Context(), "refs/agency/trash/x", head, got.Commit, "move"))
			l.Must(worktree.RemoveAdminDir(repo, w.Name))
			l.Must(repo.DeleteRef(t.Context(), w.Branch, head))
			if ran, err := os.ReadFile(witness); err == nil {
				t.Errorf("these hooks ran: %s", ran)
			}
		})
	}
}
