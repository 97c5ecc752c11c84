package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanDoesNotFollowSwappedSource replaces a directory of a source by a symbolic link, while the source is listed or
// before a file in it is read, and checks that no file behind the link is read.
func TestPlanDoesNotFollowSwappedSource(t *testing.T) {
	t.Parallel()
	for name, swapWhen := range map[string]string{"while listing": "sub", "before reading": ""} {
		dir := t.TempDir()
		source, sub, secret := filepath.Join(dir, "source"), filepath.Join(dir, "source", "sub"), filepath.Join(dir, "secret")
		for _, d := range []string{sub, secret} {
			if err := errors.Join(os.MkdirAll(d, 0o755), os.WriteFile(filepath.Join(d, "file"), []byte(d), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		swap := func() error { return errors.Join(os.Rename(sub, filepath.Join(dir, "away")), os.Symlink(secret, sub)) }
		found := Plan{}
		defer found.Close()
		tree, err := found.openSource(source)
		if err != nil {
			t.Fatal(err)
		}
		err = tree.walk(func(name, rel string, info fs.FileInfo) error {
			if rel == swapWhen {
				return swap()
			}
			if !info.Mode().IsRegular() {
				return nil
			}
			if err := swap(); err != nil {
				return err
			}
			f, err := tree.open(name, rel, info)
			if err == nil {
				t.Errorf("%s: %s was read", name, rel)
				err = f.Close()
			}
			return err
		})
		if !strings.Contains(fmt.Sprint(err), sub) {
			t.Errorf("%s: %v", name, err)
		}
		// A file with the same name that is not the listed one.
		tree = &sourceTree{source: secret}
		listed, err := os.Lstat(filepath.Join(dir, "away", "file"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.open(filepath.Join(secret, "file"), ".", listed); !errors.As(err, new(*Error)) {
			t.Errorf("%s: open of another file: %v", name, err)
		}
	}
}
