package gitagency

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Promise: what is left of a sandbox is for one other process to remove, which has nobody else do it: else there would be
// one after the other without end.
func TestWhoTidiesUpLeavesNothingToTidyUp(t *testing.T) {
	t.Parallel()
	l := committed(t, Options{})
	first, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, DeferCleanup: true})
	if err != nil || !first.CleanupDeferred || first.Already {
		t.Fatalf("%+v, %v", first, err)
	}
	around, entry := l.repo.store.SandboxDir(l.repo.ID, l.box.ID), l.repo.git.UnregisteredDir(l.box.ID)
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("there is nothing left to remove: %v", err)
		}
	}
	second, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, DeferCleanup: true})
	if err != nil || second.CleanupDeferred || !second.Already || second.Commit != first.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}

// Promise: the same of a sandbox that nobody has written to since it was looked at, for which nobody is kept from the repository.
func TestWhatHasLainStillIsTidiedUpWhole(t *testing.T) {
	t.Parallel()
	l := committed(t, Options{})
	if landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, DeferCleanup: true}); err != nil || !landed.CleanupDeferred {
		t.Fatalf("%+v, %v", landed, err)
	}
	later := time.Now().Add(time.Hour) // nobody can make a file look as if it were older than it is
	if err := l.repo.store.UpdateInvocationMeta(l.repo.ID, l.box.ID, func(m *store.InvocationMeta) { m.CheckedAt = &later }); err != nil {
		t.Fatal(err)
	}
	_, unlock, err := l.repo.lockAndRecover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := l.repo.removeLandedTree(t.Context(), l.box.ID); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{l.repo.store.SandboxDir(l.repo.ID, l.box.ID), l.repo.git.UnregisteredDir(l.box.ID)} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(l.repo.CommonDir, "agency", "removed-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Promise: what git had of a sandbox is out of its sight when that has landed, and nobody takes what is about to be removed
// for something that was left.
func TestWhatIsTidiedUpLaterIsNobodysConcern(t *testing.T) {
	t.Parallel()
	l := committed(t, Options{})
	if _, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, DeferCleanup: true}); err != nil {
		t.Fatal(err)
	}
	registered, err := l.repo.git.RegisteredTrees()
	if err != nil || registered[l.box.ID] != "" {
		t.Errorf("git has it at %q, %v", registered[l.box.ID], err)
	}
	// Nobody is at it, so that what is left of the sandbox is told of, as one thing. A process that another test is starting just
	// now may have the sandbox's lock for a moment.
	var findings []Finding
	for range 100 {
		if findings, _, err = l.repo.collectFindings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(findings) > 0 {
			break
		}
	}
	if len(findings) != 1 || findings[0].Code != "interrupted-discard" {
		t.Fatalf("%+v", findings)
	}
	if _, err := l.repo.Fix(t.Context(), l.box.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(l.repo.git.UnregisteredDir(l.box.ID)); !os.IsNotExist(err) {
		t.Errorf("what git had of it is still there: %v", err)
	}
}
