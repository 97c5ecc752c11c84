package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A rollback that was interrupted may have taken the rules along by which something was ignored. Who finishes it, and be
// it the third to try, does not take that for files that came later: it stays, as it would have without the interruption.
func TestARollbackThatIsFinishedKeepsWhatWasIgnoredWhenItBegan(t *testing.T) {
	t.Parallel()
	falls := false
	l := newLab(t, Options{Fault: func(_ context.Context, at string) error {
		if falls && at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.repo.opts.Warn = nil
	l.write("a", "1\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(l.box.WorkDir(), "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.write(".gitignore", "*.log\n/build/\n")
	l.write("a.log", "ignored\n")
	l.write("build/out", "ignored\n")
	l.write("later", "2\n")
	falls = true
	for range 2 {
		if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + "/1"}); !is[*HalfWayError](err) {
			t.Fatalf("%v", err)
		}
	}
	falls = false
	l.write("new", "meanwhile\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.log", "build/out"} {
		if data, err := os.ReadFile(filepath.Join(l.box.WorkDir(), name)); err != nil || string(data) != "ignored\n" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{".gitignore", "later", "new"} {
		if _, err := os.Lstat(filepath.Join(l.box.WorkDir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if l.box.hasRollbackNote() {
		t.Error("it was not finished")
	}
}

// What is there although git was told not to check it out, as a file of settings that somebody hides from git, is part
// of the state like any other, and stays hidden.
func TestARollbackTakesWhatIsHiddenFromGit(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.write("settings", "0\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "settings")
	l.git("update-index", "--skip-worktree", "settings")
	l.write("settings", "1\n")
	if _, err := l.box.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write("settings", "2\n")
	for _, c := range []struct{ number, want string }{{"/1", "1\n"}, {"/2", "2\n"}} {
		if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: l.box.ID + c.number}); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(filepath.Join(l.box.WorkDir(), "settings"))
		if got := l.git("ls-files", "-v"); string(data) != c.want || got != "S settings" {
			t.Errorf("%q, %s", data, got)
		}
	}
}
