package update

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

const deletedRef = "refs/heads/agency/x" // branch that an update deletes when the other branch has moved

// newRefDeletingLab is newDirtyLab with an update that also deletes deletedRef.
func newRefDeletingLab(t *testing.T) *updateLab {
	t.Helper()
	lab := newDirtyLab(t)
	lab.Git("update-ref", deletedRef, lab.spec.Old)
	lab.spec.OtherRefs = append(lab.spec.OtherRefs, RefMove{Ref: deletedRef, Old: lab.spec.Old, New: strings.Repeat("0", len(lab.spec.Old))})
	return lab
}

// requireRef checks the commit of a ref; empty: it must not exist.
func (lab *updateLab) requireRef(ref, want string) {
	lab.T.Helper()
	if got, err := lab.repo.Tip(lab.T.Context(), ref); got != want || err != nil {
		lab.T.Errorf("%s is at %q, want %q: %v", ref, got, want, err)
	}
}

func TestUpdateDeletesRefAfterBranchMoved(t *testing.T) {
	t.Parallel()
	lab := newRefDeletingLab(t)
	lab.Must(lab.runAll())
	lab.requireRef(deletedRef, "")

	// Git is killed after it moved the branch and before it deleted the ref.
	for _, packed := range []bool{false, true} {
		lab = newRefDeletingLab(t)
		lab.killAt("publish")
		lab.Git("update-ref", deletedRef, lab.spec.Old)
		if packed {
			lab.Git("pack-refs", "--all")
		}
		if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		lab.requireRef(deletedRef, "")
	}

	// A ref that another process has moved is not deleted.
	lab = newRefDeletingLab(t)
	lab.killAt("publish")
	lab.Git("update-ref", deletedRef, lab.spec.New)
	if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	lab.requireRef(deletedRef, lab.spec.New)
}

func TestRecoverRestoresDeletedRef(t *testing.T) {
	t.Parallel()
	lab := newRefDeletingLab(t)
	lab.killAt("commit")
	lab.Git("update-ref", "-d", deletedRef)
	lab.Git("update-ref", "refs/agency/trash/x", lab.spec.New) // moved by another process: the update would set another commit
	if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	lab.requireRef(deletedRef, lab.spec.Old)
	lab.requireRef("refs/agency/trash/x", lab.spec.New)
}

// When the branch already has the new commit, the other refs decide whether the update is done.
func TestUpdateOfUnmovedBranchIsDoneByOtherRefs(t *testing.T) {
	t.Parallel()
	lab := newRefDeletingLab(t)
	lab.spec.New, lab.spec.GitDir, lab.spec.Worktree = lab.spec.Old, "", ""
	before := lab.diskState()
	tx, err := lab.begin()
	lab.Must(err)
	tx.fault = func(at string) error {
		if at == "commit" {
			_, _ = tx.updateRef.Close() // as when git is killed
		}
		return nil
	}
	lab.Must(errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context()), tx.MoveFiles(t.Context())))
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("Commit succeeded, but no ref has moved")
	}
	lab.Must(tx.Close())
	gittest.RequireSame(t, "undone", lab.diskState(), before)
	if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	gittest.RequireSame(t, "recovered", lab.diskState(), before)
	lab.Must(lab.runAll())
	lab.requireRef("refs/agency/trash/x", lab.spec.Old)
	lab.requireRef(deletedRef, "")
	if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// Undo refuses when the refs cannot be read: if they have moved, the files would be those of another commit.
func TestUndoRefusesWhenRefsAreUnreadable(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		status := lab.status()
		tx, _, err := lab.runUntil("commit")
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		repo := tx.repo
		tx.fault = func(string) error {
			lab.Must(tx.sendToUpdateRef("commit\x00", 1)) // git moves the refs and is killed before it answers
			_, _ = tx.updateRef.Close()
			lost := *repo
			lost.CommonDir = filepath.Join(gittest.TempDir(t), "lost")
			lost.GitDir = lost.CommonDir
			tx.repo = &lost
			return nil
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Fatal("Commit succeeded")
		}
		if err := tx.Undo(t.Context()); err == nil {
			t.Error("Undo succeeded")
		}
		lab.Must(tx.Close())
		if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		lab.requireLanded(status)
	})
}

// Promise: Publish returns an error when the moved refs cannot be synced to disk, and does not rename the index before they
// are: after a power cut the new index could be there with the old refs.
func TestPublishWaitsForRefSync(t *testing.T) {
	t.Parallel()
	for _, checkedOut := range []bool{true, false} {
		l := gittest.New(t)
		lab := newUpdateLab(l, commitOnMain(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") }))
		if !checkedOut {
			l.Git("branch", "free")
			zeros := strings.Repeat("0", len(lab.spec.New))
			lab.spec = Update{Branch: "refs/heads/free", Old: lab.spec.Old, New: lab.spec.Old, OtherRefs: []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: lab.spec.New}}}
		}
		tx, err := lab.begin()
		l.Must(err)
		l.Must(errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context()), tx.MoveFiles(t.Context())))
		// Git has the real refs; our sync uses a directory in which refs/heads is a dangling symlink.
		repo := *tx.repo
		repo.CommonDir = gittest.TempDir(t)
		l.Must(os.Mkdir(filepath.Join(repo.CommonDir, "refs"), 0o777))
		l.Must(os.Symlink("nowhere", filepath.Join(repo.CommonDir, "refs/heads")))
		tx.repo = &repo
		l.Must(tx.Commit(t.Context()))
		synced := tx.waitRefsSynced
		tx.waitRefsSynced = func() (struct{}, error) {
			if got := l.Git("diff", "--cached", "--name-only", lab.spec.Old); got != "" {
				t.Errorf("the index has the new %q already", got)
			}
			return synced()
		}
		if err := tx.Publish(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("checked out %t: %v", checkedOut, err)
		}
		l.Must(tx.Close())
	}
}

// Promise: an update removes the lock files of its own refs that a killed git left.
func TestPrepareRemovesAbandonedLocks(t *testing.T) {
	t.Parallel()
	lab := newRefDeletingLab(t)
	lab.repo.LockWait.Timeout = time.Millisecond
	lab.Write(".git/refs/agency/trash/x.lock", "")
	lab.Write(".git/"+deletedRef+".lock", "")
	lab.Must(lab.runAll())
	lab.requireRef("refs/agency/trash/x", lab.spec.Old)
	lab.requireRef(deletedRef, "")

	// The lock of a branch that others use stays.
	lab = newDirtyLab(t)
	lab.Write(".git/refs/heads/main.lock", "")
	before := lab.diskState()
	var locked *git.LockedError
	if err := lab.runAll(); !errors.As(err, &locked) || locked.Path != lab.repo.RefPath(lab.spec.Branch)+".lock" {
		t.Errorf("%v", err)
	}
	gittest.RequireSame(t, "locked branch", lab.diskState(), before)
}

// Promise: a lock file that git update-ref leaves when it is interrupted is removed.
func TestInterruptedPrepareRemovesLocks(t *testing.T) {
	t.Parallel()
	lab := newDirtyLab(t)
	lab.repo.LockWait.Timeout = time.Millisecond
	before := lab.diskState()
	tx, err := lab.begin()
	lab.Must(err)
	lab.Must(tx.Lock(t.Context()))
	// Git waits for the lock of the branch, which stands for one that a signal kept it from removing.
	lab.Write(".git/refs/heads/main.lock", "")
	stop := errors.New("stop")
	ctx, interrupt := context.WithCancelCause(t.Context())
	go func() {
		for !gittest.Exists(filepath.Join(lab.Root, ".git/refs/agency/trash/x.lock")) && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		interrupt(stop)
	}()
	if err := tx.Prepare(ctx); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	lab.Must(tx.Undo(t.Context()))
	gittest.RequireSame(t, "interrupted", lab.diskState(), before)
}
