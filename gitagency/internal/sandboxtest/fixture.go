// Package sandboxtest makes repositories with a sandbox, for tests of the packages above sandbox.
package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Fixture is a repository with a sandbox, used through the library. A warning fails the test.
type Fixture struct {
	T       *testing.T
	Repo    *core.Repository
	Sandbox *sandbox.Sandbox
	Git     func(args ...string) string // runs git in the sandbox
}

// New makes a repository with a sandbox.
func New(t *testing.T, opts core.Options, config ...string) *Fixture {
	t.Helper()
	repo, gitIn := coretest.Open(t, opts, config...)
	inv, err := creation.Start(t.Context(), repo, creation.Request{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Open(repo, inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	return &Fixture{T: t, Repo: repo, Sandbox: box, Git: gitIn(box.WorkDir())}
}

// StartWithoutWalls replaces the sandbox of the Fixture by a new one without walls.
func (l *Fixture) StartWithoutWalls() {
	l.T.Helper()
	inv, err := creation.Start(l.T.Context(), l.Repo, creation.Request{Worktree: "wt", Primitives: store.Primitives{Isolation: settings.IsolationNone}})
	if err != nil {
		l.T.Fatal(err)
	}
	if l.Sandbox, err = sandbox.Open(l.Repo, inv.ID); err != nil {
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

// NewWithCommit makes a Fixture whose sandbox, without walls, has one commit to land.
func NewWithCommit(t *testing.T, opts core.Options) *Fixture {
	t.Helper()
	l := New(t, opts)
	l.StartWithoutWalls()
	l.WriteFile("new", "new\n")
	l.Git("add", "new")
	l.Git("commit", "-q", "-m", "work")
	return l
}

// DescribeState lists everything that a landing could change or a verify sandbox could leave: records, refs, logs.
func DescribeState(l *Fixture) string {
	l.T.Helper()
	files := []string{}
	if err := filepath.WalkDir(l.Repo.Store.RepoDir(l.Repo.ID), func(path string, d os.DirEntry, err error) error {
		if d != nil && d.Name() == "tree" && strings.Contains(path, "/worktrees/") {
			return filepath.SkipDir
		}
		if d != nil && d.Name() != "verify.log" && d.Name() != "events.jsonl" {
			files = append(files, path)
		}
		return err
	}); err != nil {
		l.T.Fatal(err)
	}
	for _, name := range []string{"refs", "logs", "worktrees"} {
		if err := filepath.WalkDir(filepath.Join(l.Repo.CommonDir, name), func(path string, d os.DirEntry, err error) error {
			if d != nil && !d.IsDir() && d.Name() != "index" {
				data, _ := os.ReadFile(path)
				path += " " + string(data)
				files = append(files, path)
			}
			return err
		}); err != nil {
			l.T.Fatal(err)
		}
	}
	return strings.Join(files, "\n")
}
