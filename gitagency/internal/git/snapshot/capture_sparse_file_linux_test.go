package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// Capture refuses a sparse file of a terabyte, unless git ignores it: it takes no disk space, but git would read all of it.
func TestCaptureRefusesHugeSparseFileUnlessIgnored(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	path := filepath.Join(w.Tree, "huge")
	l.Must(os.WriteFile(path, nil, 0o644))
	l.Must(os.Truncate(path, 1<<40))
	var sparse *status.SparseFileError
	if _, err := Capture(t.Context(), repo, repotest.SpecOf(l, w)); !errors.As(err, &sparse) || sparse.Path != path {
		t.Errorf("got %v", err)
	}
	l.WriteIn(w.Tree, ".gitignore", "/huge\n")
	if got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w)); err != nil || !got.Dirty {
		t.Errorf("got %+v, %v", got, err)
	}
}
