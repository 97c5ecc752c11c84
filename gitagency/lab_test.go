package gitagency

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lab is a repository with a sandbox in it, opened by the library alone. A warning fails its test.
type lab struct {
	t    *testing.T
	repo *Repository
	box  *Sandbox
	git  func(args ...string) string // in the sandbox
}

func newLab(t *testing.T, opts Options, config ...string) *lab {
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
	return &lab{t: t, repo: repo, box: box, git: git(box.WorkDir())}
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

// withoutWalls gives the lab another sandbox, that has none.
func (l *lab) withoutWalls() {
	l.t.Helper()
	inv, err := l.repo.Start(l.t.Context(), StartRequest{Worktree: "wt", Primitives: Primitives{Isolation: isolationNone}})
	if err != nil {
		l.t.Fatal(err)
	}
	if l.box, err = l.repo.Sandbox(inv.ID); err != nil {
		l.t.Fatal(err)
	}
	env := l.repo.opts.Env
	l.git = func(args ...string) string {
		l.t.Helper()
		cmd := exec.CommandContext(l.t.Context(), "git", args...)
		cmd.Dir, cmd.Env = l.box.WorkDir(), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			l.t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
}

func (l *lab) write(name, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.box.WorkDir(), name), []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}
