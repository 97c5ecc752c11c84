package gitagency

import (
	"os"
	"testing"
)

// Promise: what is left of a sandbox is for one other process to remove, which has nobody else do it: else there would be
// one after the other without end.
func TestWhoTidiesUpLeavesNothingToTidyUp(t *testing.T) {
	t.Parallel()
	l := committed(t, Options{})
	first, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, Later: true})
	if err != nil || !first.Aside || first.Already {
		t.Fatalf("%+v, %v", first, err)
	}
	around := l.repo.store.SandboxDir(l.repo.ID, l.box.ID)
	if _, err := os.Lstat(around); err != nil {
		t.Fatalf("there is nothing left to remove: %v", err)
	}
	second, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, Later: true})
	if err != nil || second.Aside || !second.Already || second.Commit != first.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	if _, err := os.Lstat(around); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
