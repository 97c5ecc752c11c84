package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// An interrupted rollback may have removed the .gitignore already. The process that finishes it still keeps the files
// that were ignored when the rollback started, also on the third attempt.
func TestFinishedRollbackKeepsIgnoredFiles(t *testing.T) {
	t.Parallel()
	fails := false
	l := newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
		if fails && at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.repo.opts.Warn = nil
	l.writeFile("a", "1\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(l.sandbox.WorkDir(), "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.writeFile(".gitignore", "*.log\n/build/\n")
	l.writeFile("a.log", "ignored\n")
	l.writeFile("build/out", "ignored\n")
	l.writeFile("later", "2\n")
	fails = true
	for range 2 {
		if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); !is[*UnfinishedTransitionError](err) {
			t.Fatalf("%v", err)
		}
	}
	fails = false
	l.writeFile("new", "meanwhile\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.log", "build/out"} {
		if data, err := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), name)); err != nil || string(data) != "ignored\n" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{".gitignore", "later", "new"} {
		if _, err := os.Lstat(filepath.Join(l.sandbox.WorkDir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if l.sandbox.hasRollbackJournal() {
		t.Error("the rollback was not finished")
	}
}

// Snapshots and rollbacks include files that exist although their index entry has the skip-worktree bit, a common way to
// hide local settings from git. The bit stays.
func TestRollbackRestoresSkipWorktreeFiles(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{})
	l.writeFile("settings", "0\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "settings")
	l.git("update-index", "--skip-worktree", "settings")
	l.writeFile("settings", "1\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("settings", "2\n")
	for _, c := range []struct{ number, want string }{{"/1", "1\n"}, {"/2", "2\n"}} {
		if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + c.number}); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "settings"))
		if got := l.git("ls-files", "-v"); string(data) != c.want || got != "S settings" {
			t.Errorf("%q, %s", data, got)
		}
	}
}
