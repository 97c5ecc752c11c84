package doctor

import (
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// Promise: git no longer lists the worktree of a landed sandbox whose removal is deferred. Doctor has no findings as long
// as a process has the lock of the removal open, and then reports all remains as a single interrupted discard, which it
// can fix.
func TestDeferredCleanupIsOneFinding(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	landed, err := landing.Land(t.Context(), l.Repo, landing.Request{ID: l.Sandbox.ID, DeferCleanup: true})
	if err != nil {
		t.Fatal(err)
	}
	registered, err := worktree.RegisteredTrees(l.Repo.Git)
	if err != nil || registered[l.Sandbox.ID] != "" {
		t.Errorf("git still lists it at %q, %v", registered[l.Sandbox.ID], err)
	}
	d, err := collectFindings(t.Context(), l.Repo)
	if err != nil || len(d.Findings) > 0 || d.ActiveProcess == "" {
		t.Errorf("during the removal: %+v, %v", d, err)
	}
	if err := landed.CleanupLock.Close(); err != nil {
		t.Fatal(err)
	}
	// No process is removing the sandbox, so doctor reports it, as one finding. The loops are needed because a process that a
	// parallel test forks holds a copy of the lock until its exec.
	for range 100 {
		if d, err = collectFindings(t.Context(), l.Repo); err != nil {
			t.Fatal(err)
		}
		if len(d.Findings) > 0 {
			break
		}
	}
	if len(d.Findings) != 1 || d.Findings[0].Code != "interrupted-discard" {
		t.Fatalf("%+v", d.Findings)
	}
	for range 100 {
		fixed, err := Fix(t.Context(), l.Repo, l.Sandbox.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(fixed) > 0 {
			break
		}
	}
	if _, err := os.Lstat(worktree.UnregisteredDir(l.Repo.Git, l.Sandbox.ID)); !os.IsNotExist(err) {
		t.Errorf("its administrative directory is still there: %v", err)
	}
}
