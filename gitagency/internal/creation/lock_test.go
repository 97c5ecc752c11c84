package creation_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// whileFilling makes a repository in which the first start calls do while it writes the files of the sandbox. Other commands
// have another *core.Repository, which waits for locks: a child that another test has just forked, or a wait that was given up, can
// hold one for a moment.
func whileFilling(t *testing.T, lockTimeout string, do func(other *core.Repository) error) (r, other *core.Repository) {
	t.Helper()
	done := false
	r, _ = coretest.Open(t, core.Options{RelockTimeout: time.Millisecond, Fault: func(_ context.Context, point string) error {
		if point != "start/checkout:before" || done {
			return nil
		}
		done = true
		return do(other)
	}}, "agency.lockTimeout", lockTimeout)
	opts, patience := r.Opts, time.Minute
	opts.Fault, opts.LockTimeout = nil, &patience
	other, err := core.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r, other
}

func start(t *testing.T, r *core.Repository) (core.Invocation, error) {
	t.Helper()
	return creation.Start(t.Context(), r, creation.Request{Worktree: "wt", From: "HEAD"})
}

// TestStartHoldsNoLockWhileFilling runs another start while the first one writes files, and checks that the first one is seen
// only when it is complete.
func TestStartHoldsNoLockWhileFilling(t *testing.T) {
	t.Parallel()
	var second core.Invocation
	r, other := whileFilling(t, "1m", func(other *core.Repository) (err error) {
		if second, err = start(t, other); err != nil {
			return err
		}
		found, err := other.Invocations(core.ListRequest{})
		if err == nil && (len(found) != 1 || found[0].ID != second.ID) {
			t.Errorf("the invocations are %+v", found)
		}
		return err
	})
	first, err := start(t, r)
	if err != nil {
		t.Fatal(err)
	}
	found, err := other.Invocations(core.ListRequest{})
	if err != nil || len(found) != 2 || first.ID == second.ID {
		t.Errorf("the invocations are %+v, %v", found, err)
	}
}

// TestStartChecksWorktreeAgain removes the integration worktree while files are written. The start must fail, and leave nothing.
func TestStartChecksWorktreeAgain(t *testing.T) {
	t.Parallel()
	r, _ := whileFilling(t, "1m", func(other *core.Repository) error {
		_, err := other.RemoveWorktree(t.Context(), core.RemoveWorktreeRequest{Worktree: "wt"})
		return err
	})
	if _, err := start(t, r); !errors.As(err, new(*fault.ArchivedError)) {
		t.Errorf("got %v", err)
	}
	requireNoSandbox(t, r)
}

// TestFailedStartKeepsExcludeOfOthers lets the first creation of all fail after another one has succeeded, which needs the
// pattern that the first one added to info/exclude.
func TestFailedStartKeepsExcludeOfOthers(t *testing.T) {
	t.Parallel()
	r, _ := whileFilling(t, "1m", func(other *core.Repository) error {
		_, err := start(t, other)
		return errors.Join(err, errFault)
	})
	exclude := filepath.Join(r.CommonDir, "info", "exclude")
	if err := os.Remove(exclude); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, r); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(exclude); err != nil || !strings.Contains(string(content), core.ExcludePattern) {
		t.Errorf("info/exclude is %q, %v", content, err)
	}
}

var errFault = errors.New("a fault")

// TestStartWithoutLockLeavesUndoToDoctor keeps the repository locked when the undo of a failed start needs the lock.
func TestStartWithoutLockLeavesUndoToDoctor(t *testing.T) {
	var warnings []string
	unlock := func() {}
	r, other := whileFilling(t, "0", func(other *core.Repository) (err error) {
		if _, unlock, err = other.LockAndRecover(t.Context()); err != nil {
			return err
		}
		return errFault
	})
	quiet := r.WithWarn(func(message string) { warnings = append(warnings, message) })
	if _, err := start(t, quiet); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	unlock()
	found, err := other.Invocations(core.ListRequest{All: true})
	if err != nil || len(found) != 1 || found[0].Entry.Intent == nil {
		t.Fatalf("the invocations are %+v, %v", found, err)
	}
	if want := "'git agency doctor --fix " + found[0].ID + "' removes it"; len(warnings) != 1 || !strings.HasSuffix(warnings[0], want) {
		t.Errorf("warned %q, want %q", warnings, want)
	}
	repo, unlock, err := other.LockAndRecover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := creation.UndoInterrupted(t.Context(), other, repo, found[0].ID, *found[0].Entry.Intent); err != nil {
		t.Error(err)
	}
	requireNoSandbox(t, other)
}

// requireNoSandbox fails the test if anything of a sandbox is left.
func requireNoSandbox(t *testing.T, r *core.Repository) {
	t.Helper()
	for _, pattern := range []string{
		r.Store.InvocationDir(r.ID, "*"), r.Store.SandboxDir(r.ID, "*"), r.Git.RefPath(core.SandboxRef("*")), r.Git.ReflogPath(core.SandboxRef("*")),
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
}
