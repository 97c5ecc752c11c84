package transport

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// TestReceiveKeepsObjectsFromGC: a gc of the user between the move of the pack and that of the ref removes nothing.
func TestReceiveKeepsObjectsFromGC(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	in := newSandboxRepo(l).newRequest()
	in.Stored = func(*git.Repo, Checked) error {
		l.Git("gc", "-q", "--prune=now")
		return nil
	}
	l.Must(Receive(t.Context(), repotest.OpenRepo(l), in))
	if got := l.Git("rev-parse", sandboxRef); got != in.New {
		t.Errorf("ref is at %s", got)
	}
	l.Git("fsck", "--no-progress")
	checkNoKeeps(t, l)
}

// TestReceiveRemovesAbandonedKeeps: what a killed process left does not keep a pack for ever, but the .keep files of the user do.
func TestReceiveRemovesAbandonedKeeps(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	packs := filepath.Join(l.Root, ".git/objects/pack")
	l.Must(os.MkdirAll(packs, 0o755))
	l.Must(os.Symlink("pack-1.pack", filepath.Join(packs, "pack-1.keep")))
	l.Must(os.Symlink("elsewhere", filepath.Join(packs, "pack-2.keep")))
	l.WriteIn(packs, "pack-3.keep", "")
	l.Must(Receive(t.Context(), repotest.OpenRepo(l), newSandboxRepo(l).newRequest()))
	checkNoKeeps(t, l, "pack-2.keep", "pack-3.keep")
}

// TestFailedReceiveRemovesKeeps: a pack that arrived without its ref is left to gc.
func TestFailedReceiveRemovesKeeps(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	in := newSandboxRepo(l).newRequest()
	in.Stored = func(*git.Repo, Checked) error { return os.ErrInvalid }
	if err := Receive(t.Context(), repotest.OpenRepo(l), in); err == nil {
		t.Error("succeeded")
	}
	checkNoKeeps(t, l)
}

// checkNoKeeps checks that there are no .keep files but these.
func checkNoKeeps(t *testing.T, l *gittest.Fixture, but ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.Root, ".git/objects/pack/*.keep"))
	l.Must(err)
	if len(found) != len(but) {
		t.Errorf("found %v, want %v", found, but)
	}
}
