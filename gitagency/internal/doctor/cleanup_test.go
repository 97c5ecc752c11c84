package doctor

import (
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// Promise: git no longer lists the worktree of a landed sandbox whose removal is deferred, and doctor reports all of its
// remains as a single interrupted discard, which it can fix.
func TestDeferredCleanupIsOneFinding(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	if _, err := landing.Land(t.Context(), l.Repo, landing.Request{ID: l.Sandbox.ID, DeferCleanup: true}); err != nil {
		t.Fatal(err)
	}
	registered, err := l.Repo.Git.RegisteredTrees()
	if err != nil || registered[l.Sandbox.ID] != "" {
		t.Errorf("git still lists it at %q, %v", registered[l.Sandbox.ID], err)
	}
	// No process is removing the sandbox, so doctor reports it, as one finding. The loop is needed because a process that a
	// parallel test forks holds a copy of the sandbox's lock until its exec.
	var findings []Finding
	for range 100 {
		if findings, _, err = collectFindings(t.Context(), l.Repo); err != nil {
			t.Fatal(err)
		}
		if len(findings) > 0 {
			break
		}
	}
	if len(findings) != 1 || findings[0].Code != "interrupted-discard" {
		t.Fatalf("%+v", findings)
	}
	if _, err := Fix(t.Context(), l.Repo, l.Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(l.Repo.Git.UnregisteredDir(l.Sandbox.ID)); !os.IsNotExist(err) {
		t.Errorf("its administrative directory is still there: %v", err)
	}
}
