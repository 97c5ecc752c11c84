package git

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file of a terabyte costs nothing to make, and git for ever to read.
func TestAFileThatIsAllHolesIsRefusedAtOnceUnlessGitIgnoresIt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	path := filepath.Join(w.Tree, "huge")
	l.must(os.WriteFile(path, nil, 0o644))
	l.must(os.Truncate(path, 1<<40))
	var hollow *SparseFileError
	if _, err := repo.Capture(t.Context(), l.subject(w)); !errors.As(err, &hollow) || hollow.Path != path {
		t.Errorf("got %v", err)
	}
	l.put(w.Tree, ".gitignore", "/huge\n")
	if got, err := repo.Capture(t.Context(), l.subject(w)); err != nil || !got.Dirty {
		t.Errorf("got %+v, %v", got, err)
	}
}
