package git

import (
	"path/filepath"
	"sync"
	"testing"
)

// What is there twice at the same time, from two who do not know of each other, is there once in the end.
func TestTheSameObjectsAreStoredByManyAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	o := encodeCommit(SHA1, Identity{"a", "b"}, l.git("rev-parse", "main^{tree}"), nil, "m")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := repo.writeObjects(t.Context(), SHA1, []rawObject{o}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := l.git("cat-file", "-t", o.hexOID()); got != "commit" {
		t.Errorf("it is a %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(repo.CommonDir, "objects/*/tmp_obj_*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
