package git_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// TestSharedLookupsSeeChanges compares shared lookups with those of a new git, before and after refs and objects change.
func TestSharedLookupsSeeChanges(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("a", "1")
	first := l.Commit("first")
	plain := repotest.OpenRepo(l)
	shared, done := plain.WithSharedLookups()
	same := func(names ...string) {
		t.Helper()
		got, err := shared.Lookup(t.Context(), names...)
		l.Must(err)
		want, err := plain.Lookup(t.Context(), names...)
		l.Must(err)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %+v, want %+v", names[i], got[i], want[i])
			}
		}
	}
	same("HEAD", "refs/heads/new", first+":a", "refs/heads/none^{tree}")
	l.Git("branch", "new")
	same("refs/heads/new")
	l.Write("a", "2")
	second := l.Commit("second")
	same("HEAD", second+"^{tree}", second+":a")
	l.Git("pack-refs", "--all")
	l.Git("gc", "-q", "--prune=now")
	same("HEAD", first, second+":a", "refs/heads/new")
	l.Git("branch", "-D", "-q", "new")
	l.Git("update-ref", "refs/heads/new", second)
	same("refs/heads/new")

	stopped, stop := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	stop(cause)
	if _, err := shared.Lookup(stopped, "HEAD"); !errors.Is(err, cause) {
		t.Errorf("after the end of the context: %v", err)
	}
	same("HEAD")
	if _, err := shared.Lookup(t.Context(), "a\nb"); err == nil {
		t.Error("a name of two lines was accepted")
	}
	same("HEAD")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { same("HEAD", first) })
	}
	group.Wait()
	done()
	same("HEAD")
}
