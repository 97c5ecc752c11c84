package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Fixture is a repository with a sandbox, used through the library. A warning fails the test.
type Fixture struct {
	T       *testing.T
	Repo    *core.Repository
	Sandbox *Sandbox
	Git     func(args ...string) string // runs git in the sandbox
}

// New makes a repository with a sandbox.
func New(t *testing.T, opts core.Options, config ...string) *Fixture {
	t.Helper()
	repo, gitIn := coretest.Open(t, opts, config...)
	inv, err := Start(t.Context(), repo, StartRequest{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := Open(repo, inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	return &Fixture{T: t, Repo: repo, Sandbox: box, Git: gitIn(box.WorkDir())}
}

// StartWithoutWalls replaces the sandbox of the Fixture by a new one without walls.
func (l *Fixture) StartWithoutWalls() {
	l.T.Helper()
	inv, err := Start(l.T.Context(), l.Repo, StartRequest{Worktree: "wt", Primitives: store.Primitives{Isolation: settings.IsolationNone}})
	if err != nil {
		l.T.Fatal(err)
	}
	if l.Sandbox, err = Open(l.Repo, inv.ID); err != nil {
		l.T.Fatal(err)
	}
	env := l.Repo.Opts.Env
	l.Git = func(args ...string) string {
		l.T.Helper()
		cmd := exec.CommandContext(l.T.Context(), "git", args...)
		cmd.Dir, cmd.Env = l.Sandbox.WorkDir(), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			l.T.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
}

func (l *Fixture) WriteFile(name, content string) {
	l.T.Helper()
	if err := os.WriteFile(filepath.Join(l.Sandbox.WorkDir(), name), []byte(content), 0o644); err != nil {
		l.T.Fatal(err)
	}
}
