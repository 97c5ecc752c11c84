package transport

import (
	"bytes"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// TestReceiveTellsWhatNoCommitKeeps: before the ref moves, the caller gets to know which blobs the new commits do not have, and whether
// the old commits stay reachable.
func TestReceiveTellsWhatNoCommitKeeps(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	a, repo := newSandboxRepo(l), repotest.OpenRepo(l)
	main := l.Git("rev-parse", "main")
	staged := a.writeObject("blob", "staged\n")
	receive := func(old, tip string, also ...string) (got Checked) {
		t.Helper()
		l.Must(Receive(t.Context(), repo, ReceiveRequest{
			Pack: bytes.NewReader(a.packSinceMain(tip, also...)), Ref: sandboxRef, New: tip, Old: old, Blobs: also,
			Stored: func(_ *git.Repo, checked Checked) error {
				got = checked
				if at := l.Git("rev-parse", sandboxRef); at != old {
					t.Errorf("the ref is at %s already", at)
				}
				return nil
			},
		}))
		return got
	}
	check := func(name string, got Checked, descends bool, loose ...string) {
		t.Helper()
		if got.Descends != descends || !slices.Equal(got.LooseBlobs, loose) {
			t.Errorf("%s: %+v, want %v and %q", name, got, descends, loose)
		}
	}
	first := a.commitFile("new.txt", "new\n")
	committed := a.git("rev-parse", first+":new.txt")
	check("a commit", receive(main, first, committed), true)
	check("a staged file", receive(first, first, staged, committed), true, staged, committed)
	second := a.commitFile("second.txt", "second\n")
	merged := a.writeCommit(a.git("rev-parse", second+"^{tree}"), main, second)
	check("a merge", receive(first, merged, a.git("rev-parse", second+":second.txt"), staged), true, staged)
	check("an older commit", receive(merged, first), false)
	amended := a.writeCommit(a.git("rev-parse", second+"^{tree}"), main)
	check("an amended commit", receive(first, amended), false)
}
