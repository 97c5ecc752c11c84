package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// An interrupted rollback whose snapshot is gone cannot be finished: commands refuse, and doctor removes its note.
func TestRollbackWithLostSnapshotIsDropped(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	var said []string
	l.Repo.Opts.Warn = func(message string) { said = append(said, message) }
	l.WriteFile("a", "1\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("a", "2\n")
	var halfWay *fault.UnfinishedTransitionError
	if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); !errors.As(err, &halfWay) || halfWay.LeftSnapshot != l.Sandbox.ID+"/2" {
		t.Fatal(err)
	}
	l.Git("update-ref", "-d", core.SnapshotRef(l.Sandbox.ID, 1))
	if _, err := l.Sandbox.Snapshot(t.Context()); !fault.Is[*fault.LostRollbackError](err) {
		t.Fatal(err)
	}
	fixed, err := Fix(t.Context(), l.Repo, l.Sandbox.ID)
	if err != nil || len(fixed) != 1 || fixed[0].Code != "interrupted-rollback" {
		t.Fatal(fixed, err)
	}
	if !strings.Contains(strings.Join(said, "\n"), "cannot be finished") {
		t.Errorf("%q", said)
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A rollback to a snapshot of another sandbox applies it to this sandbox's own branch. While such a rollback is
// unfinished, prune keeps the snapshot.
func TestRollbackToSnapshotOfOtherSandbox(t *testing.T) {
	t.Parallel()
	fail := true
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" && fail {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.Repo.Opts.Warn = nil
	l.WriteFile("theirs", "1\n")
	l.Git("add", "theirs")
	l.Git("commit", "-q", "-m", "theirs")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	head := l.Git("rev-parse", "HEAD")
	inv, err := creation.Start(t.Context(), l.Repo, creation.Request{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := sandbox.Open(l.Repo, inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); !fault.Is[*fault.UnfinishedTransitionError](err) {
		t.Fatal(err)
	}
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}
	prune := func() string {
		t.Helper()
		pruned, err := Prune(t.Context(), l.Repo, PruneRequest{Expire: "now"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pruned {
			if p.ID == l.Sandbox.ID {
				return p.Action
			}
		}
		return ""
	}
	if got := prune(); got != PruneKeep {
		t.Errorf("prune action: %s", got)
	}
	fail = false
	if _, err := other.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(other.WorkDir(), "theirs"))
	if at, _ := l.Repo.Git.Tip(t.Context(), core.SandboxRef(other.ID)); err != nil || string(data) != "1\n" || at != head {
		t.Errorf("%q, %v; the branch is at %s, want %s", data, err, at, head)
	}
	if got := prune(); got != PruneRemove {
		t.Errorf("prune action: %s", got)
	}
}
