package gitagency

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// testRepo is a repository with a sandbox, used through the library. A warning fails the test.
type testRepo struct {
	t       *testing.T
	repo    *Repository
	sandbox *Sandbox
	git     func(args ...string) string // runs git in the sandbox
}

func newTestRepo(t *testing.T, opts Options, config ...string) *testRepo {
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
	opts.Warn = failOnWarning(t)
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
	repo, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.CreateWorktree(t.Context(), CreateWorktreeRequest{Name: "wt"}); err != nil {
		t.Fatal(err)
	}
	inv, err := repo.Start(t.Context(), StartRequest{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := repo.Sandbox(inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	return &testRepo{t: t, repo: repo, sandbox: box, git: git(box.WorkDir())}
}

// failOnWarning fails the test for each warning but one: on a busy machine another process may hold the
// repository lock for longer than the second after which a wait is reported.
func failOnWarning(t *testing.T) func(message string) {
	return func(message string) {
		if !strings.HasPrefix(message, "waiting for the repository lock, ") {
			t.Error(message)
		}
	}
}

// startWithoutWalls replaces the sandbox of the testRepo by a new one without walls.
func (l *testRepo) startWithoutWalls() {
	l.t.Helper()
	inv, err := l.repo.Start(l.t.Context(), StartRequest{Worktree: "wt", Primitives: Primitives{Isolation: isolationNone}})
	if err != nil {
		l.t.Fatal(err)
	}
	if l.sandbox, err = l.repo.Sandbox(inv.ID); err != nil {
		l.t.Fatal(err)
	}
	env := l.repo.opts.Env
	l.git = func(args ...string) string {
		l.t.Helper()
		cmd := exec.CommandContext(l.t.Context(), "git", args...)
		cmd.Dir, cmd.Env = l.sandbox.WorkDir(), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			l.t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
}

func (l *testRepo) writeFile(name, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.sandbox.WorkDir(), name), []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}
