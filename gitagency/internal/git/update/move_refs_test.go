package update

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

const goes = "refs/heads/agency/x" // a branch that goes when the other has moved

// parting is messy, with a branch that goes.
func parting(t *testing.T) *advancer {
	t.Helper()
	ad := messy(t)
	ad.Git("update-ref", goes, ad.a.Old)
	ad.a.OtherRefs = append(ad.a.OtherRefs, RefMove{Ref: goes, Old: ad.a.Old, New: strings.Repeat("0", len(ad.a.Old))})
	return ad
}

// at checks where a ref is.
func (ad *advancer) at(ref, want string) {
	ad.T.Helper()
	if got, err := ad.repo.Tip(ad.T.Context(), ref); got != want || err != nil {
		ad.T.Errorf("%s is at %q, want %q: %v", ref, got, want, err)
	}
}

func TestAdvanceDeletesARefWhenTheBranchHasMoved(t *testing.T) {
	t.Parallel()
	ad := parting(t)
	ad.Must(ad.advance())
	ad.at(goes, "")

	// Git is killed when the branch has moved, and that one is still there.
	for _, packed := range []bool{false, true} {
		ad = parting(t)
		ad.stopped("publish")
		ad.Git("update-ref", goes, ad.a.Old)
		if packed {
			ad.Git("pack-refs", "--all")
		}
		if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		ad.at(goes, "")
	}

	// Where it is not what it was it is somebody's.
	ad = parting(t)
	ad.stopped("publish")
	ad.Git("update-ref", goes, ad.a.New)
	if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	ad.at(goes, ad.a.New)
}

func TestFinishAdvancePutsADeletedRefBack(t *testing.T) {
	t.Parallel()
	ad := parting(t)
	ad.stopped("commit")
	ad.Git("update-ref", "-d", goes)
	ad.Git("update-ref", "refs/agency/trash/x", ad.a.New) // which is somebody's: it was to be at another
	if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	ad.at(goes, ad.a.Old)
	ad.at("refs/agency/trash/x", ad.a.New)
}

// Where the branch has all of it already, only the other refs say whether it was done.
func TestAdvanceOfABranchThatStaysIsDoneWhenTheOthersHaveMoved(t *testing.T) {
	t.Parallel()
	ad := parting(t)
	ad.a.New, ad.a.GitDir, ad.a.Worktree = ad.a.Old, "", ""
	before := ad.sum()
	x, err := ad.begin()
	ad.Must(err)
	x.fault = func(at string) error {
		if at == "commit" {
			_, _ = x.updateRef.Close() // as when git is killed
		}
		return nil
	}
	ad.Must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
	if err := x.Commit(t.Context()); err == nil {
		t.Error("nothing has moved, and it is done")
	}
	ad.Must(x.Close())
	gittest.RequireSame(t, "undone", ad.sum(), before)
	if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	gittest.RequireSame(t, "finished", ad.sum(), before)
	ad.Must(ad.advance())
	ad.at("refs/agency/trash/x", ad.a.Old)
	ad.at(goes, "")
	if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// Where nobody can tell whether the refs have moved nothing is undone: the files would be those of another commit.
func TestAdvanceUndoesNothingWhenTheRefsCannotBeRead(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		status := ad.status()
		x, _, err := ad.until("commit")
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		repo := x.repo
		x.fault = func(string) error {
			ad.Must(x.sendToUpdateRef("commit\x00", 1)) // it moves them, and is killed before it says so
			_, _ = x.updateRef.Close()
			lost := *repo
			lost.CommonDir = filepath.Join(gittest.TempDir(t), "lost")
			lost.GitDir = lost.CommonDir
			x.repo = &lost
			return nil
		}
		if err := x.Commit(t.Context()); err == nil {
			t.Fatal("it is done")
		}
		if err := x.Undo(t.Context()); err == nil {
			t.Error("it is undone")
		}
		ad.Must(x.Close())
		if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		ad.landed(status)
	})
}

// Promise: that refs have moved, and may not have by tomorrow, is said; and no index is published before that is known: who
// comes after a power cut would find it with the refs where they were.
func TestPublishWaitsUntilTheRefsLast(t *testing.T) {
	t.Parallel()
	for _, seated := range []bool{true, false} {
		l := gittest.New(t)
		ad := newAdvancer(l, ahead(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") }))
		if !seated {
			l.Git("branch", "free")
			zeros := strings.Repeat("0", len(ad.a.New))
			ad.a = Update{Branch: "refs/heads/free", Old: ad.a.Old, New: ad.a.Old, OtherRefs: []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: ad.a.New}}}
		}
		x, err := ad.begin()
		l.Must(err)
		l.Must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		// Git knows where the refs are; what we make last is where a link leads nowhere.
		repo := *x.repo
		repo.CommonDir = gittest.TempDir(t)
		l.Must(os.Mkdir(filepath.Join(repo.CommonDir, "refs"), 0o777))
		l.Must(os.Symlink("nowhere", filepath.Join(repo.CommonDir, "refs/heads")))
		x.repo = &repo
		l.Must(x.Commit(t.Context()))
		synced := x.waitRefsSynced
		x.waitRefsSynced = func() (struct{}, error) {
			if got := l.Git("diff", "--cached", "--name-only", ad.a.Old); got != "" {
				t.Errorf("the index has %q already", got)
			}
			return synced()
		}
		if err := x.Publish(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("seated %t: %v", seated, err)
		}
		l.Must(x.Close())
	}
}
