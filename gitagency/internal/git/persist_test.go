package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Promise: all that was made is kept, be it little or much, in files or in packs, whoever may read the repository; and
// keeping it twice is fine.
func TestEverythingThatWasMadeIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		files  int
		shared bool
	}{{"few", 3, false}, {"many", maxLooseObjects + 20, false}, {"few, shared", 3, true}, {"many, shared", maxLooseObjects + 20, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if c.shared {
				l.git("config", "core.sharedRepository", "group")
			}
			m := l.merger()
			var loose, packed []rawObject
			for i := range c.files {
				content := []byte(strings.Repeat(fmt.Sprint("file ", i, "\n"), 1+i*100))
				loose = append(loose, rawObject{kind: "blob", oid: hashObject(SHA1, "blob", content), content: content})
			}
			for _, o := range loose {
				l.must(m.repo.writeLoose(o))
			}
			for i := range maxLooseObjects + 1 { // of so many there is a pack
				content := []byte(fmt.Sprint("packed ", i, "\n"))
				packed = append(packed, rawObject{kind: "blob", oid: hashObject(SHA1, "blob", content), content: content})
			}
			if c.files > maxLooseObjects {
				l.must(m.repo.writeObjects(t.Context(), SHA1, packed))
				loose = append(loose, packed...)
			}
			l.must(os.WriteFile(filepath.Join(m.dir, "objects", loose[0].hexOID()[:2], "tmp_obj_x"), nil, 0o600)) // somebody was killed
			for range 2 {
				l.must(m.Persist(t.Context()))
			}
			for _, o := range loose {
				if got, err := l.try(l.dir, "cat-file", "blob", o.hexOID()); err != nil || got != string(o.content) {
					t.Fatalf("%s: %v", o.hexOID(), err)
				}
			}
			l.git("fsck", "--strict")
			if c.shared {
				err := filepath.WalkDir(filepath.Join(l.dir, ".git", "objects"), func(path string, d os.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					if fi, err := d.Info(); err != nil || fi.Mode()&0o040 == 0 {
						t.Errorf("%s: %v, %v", path, fi.Mode(), err)
					}
					return nil
				})
				l.must(err)
			}
		})
	}
}
