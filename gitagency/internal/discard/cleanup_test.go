package discard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Promise: a discard with DeferCleanup that fails at any step is undone, or finished by the next one. The next one does not
// defer the removal again: otherwise background processes would start each other without end.
func TestDeferredDiscardFailedAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"none", "capture", "trash", "record", "aside", "registration", "branch", "leftovers"} {
		for _, when := range []string{":before", ":after"} {
			if step+when == "none:after" {
				continue
			}
			t.Run(step+when, func(t *testing.T) {
				t.Parallel()
				failing := true
				l := sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, point string) error {
					if failing && point == "discard/"+step+when {
						return errors.New("made to fail")
					}
					return nil
				}})
				l.WriteFile("untracked", "u\n")
				time.Sleep(200 * time.Millisecond) // twice the accuracy of the comparison of times: the index is older than the capture
				d, err := Run(t.Context(), l.Repo, Request{Query: l.Sandbox.ID, DeferCleanup: true})
				failing = false
				tree, id := l.Sandbox.Tree, l.Sandbox.ID
				done := step == "none" || fault.Is[*fault.CleanupError](err)
				switch {
				case done != store.IsDir(store.WithdrawnPath(tree)) && step+when != "aside:before":
					t.Fatalf("the tree is moved: %v, %+v, %v", !done, d, err)
				case done != d.CleanupDeferred:
					t.Fatalf("%+v, %v", d, err)
				case !done && (err == nil || l.Git("status", "--porcelain") != "?? untracked"):
					t.Fatalf("it is not undone: %v", err)
				}
				if d.CleanupLock != nil {
					defer d.CleanupLock.Close()
				}
				if done && step != "aside" { // a process that still has the tree open
					if err := os.WriteFile(filepath.Join(store.WithdrawnPath(tree), "late"), []byte("l\n"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				again, err := Run(t.Context(), l.Repo, Request{Query: id, DeferCleanup: done})
				if err != nil || again.CleanupDeferred || again.Already != done {
					t.Fatalf("the next discard: %+v, %v", again, err)
				}
				for _, path := range []string{l.Repo.Store.SandboxDir(l.Repo.ID, id), worktree.UnregisteredDir(l.Repo.Git, id), l.Repo.Git.AdminDir(id)} {
					if _, err := os.Lstat(path); !os.IsNotExist(err) {
						t.Errorf("%s is still there: %v", path, err)
					}
				}
				want := []string{"new", "untracked"}
				if done && step != "aside" {
					want = append(want, "late")
				}
				files, err := l.Repo.Git.RunRead(t.Context(), git.RunOptions{}, "ls-tree", "-r", "--name-only", core.TrashRef(id))
				for _, name := range want {
					if err != nil || !strings.Contains("\n"+string(files), "\n"+name+"\n") {
						t.Errorf("%s is not in the trash: %v\n%s", name, err, files)
					}
				}
				if tip, err := l.Repo.Git.Tip(t.Context(), core.SandboxRef(id)); err != nil || tip != "" {
					t.Errorf("the branch is at %q, %v", tip, err)
				}
			})
		}
	}
}

// Promise: a file that is staged between the capture and the removal, and deleted again, is kept: the removal is not deferred.
func TestDeferredDiscardKeepsLateIndex(t *testing.T) {
	t.Parallel()
	var l *sandboxtest.Fixture
	l = sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, point string) error {
		if point == "discard/record:after" {
			l.WriteFile("staged", "late\n")
			l.Git("add", "staged")
			return os.Remove(filepath.Join(l.Sandbox.Tree, "staged"))
		}
		return nil
	}})
	d, err := Run(t.Context(), l.Repo, Request{Query: l.Sandbox.ID, DeferCleanup: true})
	if err != nil || d.CleanupDeferred || store.IsDir(filepath.Dir(l.Sandbox.Tree)) {
		t.Fatalf("%+v, %v", d, err)
	}
	out, err := l.Repo.Git.RunRead(t.Context(), git.RunOptions{}, "log", "-m", "--format=", "--name-only", core.TrashRef(l.Sandbox.ID))
	if err != nil || !strings.Contains("\n"+string(out), "\nstaged\n") {
		t.Errorf("the staged file is lost: %v\n%s", err, out)
	}
}

// Promise: what needs the trash of a discarded invocation at once, as restore does, need not wait for the background process.
func TestFinishRemovalRemovesWithdrawnTree(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	time.Sleep(200 * time.Millisecond) // twice the accuracy of the comparison of times
	d, err := Run(t.Context(), l.Repo, Request{Query: l.Sandbox.ID, DeferCleanup: true})
	if err != nil || !d.CleanupDeferred {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := creation.Restore(t.Context(), l.Repo, l.Sandbox.ID); !fault.Is[*fault.UnfinishedDiscardError](err) {
		t.Fatalf("restore before the removal: %v", err)
	}
	if err := FinishRemoval(t.Context(), l.Repo, l.Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := creation.Restore(t.Context(), l.Repo, l.Sandbox.ID); err != nil {
		t.Error(err)
	}
}
