package git

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Concurrent calls of WriteObjects for the same object must all succeed and leave one object and no temporary files.
func TestConcurrentWriteObjectsOfSameObject(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	o := object.EncodeCommit(object.SHA1, object.Identity{Name: "a", Email: "b"}, l.Git("rev-parse", "main^{tree}"), nil, "m")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := repo.WriteObjects(t.Context(), object.SHA1, []object.Raw{o}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := l.Git("cat-file", "-t", o.HexOID()); got != "commit" {
		t.Errorf("object type is %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(repo.CommonDir, "objects/*/tmp_obj_*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}
