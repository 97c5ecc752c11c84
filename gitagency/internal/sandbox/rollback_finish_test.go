package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// An interrupted rollback may have removed the .gitignore already. The process that finishes it still keeps the files
// that were ignored when the rollback started, also on the third attempt.
func TestFinishedRollbackKeepsIgnoredFiles(t *testing.T) {
	t.Parallel()
	fails := false
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		if fails && at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.Repo.Opts.Warn = nil
	l.WriteFile("a", "1\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(l.Sandbox.WorkDir(), "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.WriteFile(".gitignore", "*.log\n/build/\n")
	l.WriteFile("a.log", "ignored\n")
	l.WriteFile("build/out", "ignored\n")
	l.WriteFile("later", "2\n")
	fails = true
	for range 2 {
		if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); !fault.Is[*fault.UnfinishedTransitionError](err) {
			t.Fatalf("%v", err)
		}
	}
	fails = false
	l.WriteFile("new", "meanwhile\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.log", "build/out"} {
		if data, err := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), name)); err != nil || string(data) != "ignored\n" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{".gitignore", "later", "new"} {
		if _, err := os.Lstat(filepath.Join(l.Sandbox.WorkDir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if l.Sandbox.HasRollbackJournal() {
		t.Error("the rollback was not finished")
	}
}

// Snapshots and rollbacks include files that exist although their index entry has the skip-worktree bit, a common way to
// hide local settings from git. The bit stays.
func TestRollbackRestoresSkipWorktreeFiles(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.WriteFile("settings", "0\n")
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "settings")
	l.Git("update-index", "--skip-worktree", "settings")
	l.WriteFile("settings", "1\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("settings", "2\n")
	for _, c := range []struct{ number, want string }{{"/1", "1\n"}, {"/2", "2\n"}} {
		if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + c.number}); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "settings"))
		if got := l.Git("ls-files", "-v"); string(data) != c.want || got != "S settings" {
			t.Errorf("%q, %s", data, got)
		}
	}
}
