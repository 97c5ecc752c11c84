package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Promise: Persist copies all new objects into the repository, few or many, loose or packed, with the permissions of
// core.sharedRepository; and it may be called twice.
func TestPersistKeepsAllNewObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		files  int
		shared bool
	}{{"few", 3, false}, {"many", git.MaxLooseObjects + 20, false}, {"few, shared", 3, true}, {"many, shared", git.MaxLooseObjects + 20, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			if c.shared {
				l.Git("config", "core.sharedRepository", "group")
			}
			m := openMerger(l)
			var loose, packed []object.Raw
			for i := range c.files {
				content := []byte(strings.Repeat(fmt.Sprint("file ", i, "\n"), 1+i*100))
				loose = append(loose, object.Raw{Kind: "blob", OID: object.HashObject(object.SHA1, "blob", content), Content: content})
			}
			for _, o := range loose {
				l.Must(m.Repo.WriteLoose(o))
			}
			for i := range git.MaxLooseObjects + 1 { // so many objects are written as a pack
				content := []byte(fmt.Sprint("packed ", i, "\n"))
				packed = append(packed, object.Raw{Kind: "blob", OID: object.HashObject(object.SHA1, "blob", content), Content: content})
			}
			if c.files > git.MaxLooseObjects {
				l.Must(m.Repo.WriteObjects(t.Context(), object.SHA1, packed))
				loose = append(loose, packed...)
			}
			l.Must(os.WriteFile(filepath.Join(m.Dir, "objects", loose[0].HexOID()[:2], "tmp_obj_x"), nil, 0o600)) // temporary file of a killed git
			for range 2 {
				l.Must(m.Persist(t.Context()))
			}
			for _, o := range loose {
				if got, err := l.TryGit(l.Root, "cat-file", "blob", o.HexOID()); err != nil || got != string(o.Content) {
					t.Fatalf("%s: %v", o.HexOID(), err)
				}
			}
			l.Git("fsck", "--strict")
			if c.shared {
				err := filepath.WalkDir(filepath.Join(l.Root, ".git", "objects"), func(path string, d os.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					if fi, err := d.Info(); err != nil || fi.Mode()&0o040 == 0 {
						t.Errorf("%s: %v, %v", path, fi.Mode(), err)
					}
					return nil
				})
				l.Must(err)
			}
		})
	}
}
