package landing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestFailedLandKeepsJournalUntilUndone(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	var atCommit func()
	l := sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == "land/commit:before" && atCommit != nil {
			atCommit()
			return boom
		}
		return nil
	}})
	warned := ""
	l.Repo.Opts.Warn = func(message string) { warned += message + "\n" }
	wt, err := l.Repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	note := l.Repo.Store.LandingJournalPath(l.Repo.ID)
	draft := filepath.Join(l.Repo.CommonDir, "worktrees", wt.ID, "index.agency")
	fails := func() {
		t.Helper()
		if _, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID}); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if !strings.Contains(warned, "left as they are") {
			t.Errorf("the warning is missing: %q", warned)
		}
		warned = ""
	}
	overwrite := func() {
		if err := os.WriteFile(filepath.Join(wt.TreePath, "new"), []byte("somebody's\n"), 0o644); err != nil {
			t.Error(err)
		}
	}

	atCommit = overwrite
	fails()
	if _, there := store.FirstExisting(note); there {
		t.Error("the journal stays although only the user's file could not be undone")
	}
	if err := os.Remove(filepath.Join(wt.TreePath, "new")); err != nil {
		t.Fatal(err)
	}

	// The same, and an index draft that cannot be removed now.
	atCommit = func() {
		overwrite()
		if err := errors.Join(os.Remove(draft), os.MkdirAll(filepath.Join(draft, "in the way"), 0o755)); err != nil {
			t.Error(err)
		}
	}
	fails()
	if _, there := store.FirstExisting(note); !there {
		t.Error("the journal is gone although the undo is incomplete")
	}
	atCommit = nil
	if err := errors.Join(os.RemoveAll(draft), os.Remove(strings.TrimSuffix(draft, ".agency")+".lock"), os.Remove(filepath.Join(wt.TreePath, "new"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID}); err != nil {
		t.Error(err)
	}
}
