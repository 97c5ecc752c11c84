// Package coretest makes repositories with an integration worktree, for tests of the packages above core.
package coretest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// Open makes a repository with one commit and the integration worktree wt, and opens it. The function that it
// also returns runs git in a directory.
func Open(t *testing.T, opts core.Options, config ...string) (repo *core.Repository, gitIn func(dir string) func(args ...string) string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	opts.Dir = filepath.Join(root, "repo")
	opts.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
	}
	opts.Warn = FailOnWarning(t)
	git := func(dir string) func(args ...string) string {
		return func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "git", args...)
			cmd.Dir, cmd.Env = dir, opts.Env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %q: %v: %s", args, err, out)
			}
			return strings.TrimSuffix(string(out), "\n")
		}
	}
	git(root)("init", "-q", "-b", "main", opts.Dir)
	git(opts.Dir)("commit", "-q", "--allow-empty", "-m", "first")
	for i := 0; i < len(config); i += 2 {
		git(opts.Dir)("config", config[i], config[i+1])
	}
	if repo, err = core.Open(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.CreateWorktree(t.Context(), core.CreateWorktreeRequest{Name: "wt"}); err != nil {
		t.Fatal(err)
	}
	return repo, git
}

// FailOnWarning fails the test for each warning but one: on a busy machine another process may hold the
// repository lock for longer than the second after which a wait is reported.
func FailOnWarning(t *testing.T) func(message string) {
	return func(message string) {
		if !strings.HasPrefix(message, "waiting for the repository lock, ") {
			t.Error(message)
		}
	}
}
