package git

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A layer that hides objects hides them no longer, and what else it hides stays hidden.
func TestUncoverShowsObjectsAndNothingElse(t *testing.T) {
	t.Parallel()
	upper := t.TempDir()
	for _, dir := range []string{"objects/ab", "objects/pack", "objects/info", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gone := map[string]bool{"objects/cd": true, "objects/ab/1234": true, "objects/pack/pack-1.idx": true, "refs/heads/main": false, "objects/info/packs": false}
	for name := range gone {
		if err := unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR, 0); err != nil {
			t.Skipf("no such files can be made here: %v", err)
		}
	}
	opaque := filepath.Join(upper, "objects", "ab")
	if err := unix.Setxattr(opaque, "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("no marks can be made here: %v", err)
	}
	if err := os.WriteFile(filepath.Join(opaque, "5678"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	Uncover(upper)
	for name, want := range gone {
		if _, err := os.Lstat(filepath.Join(upper, name)); os.IsNotExist(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(opaque, "5678")); err != nil {
		t.Error(err)
	}
	if n, err := unix.Getxattr(opaque, "user.overlay.opaque", nil); err == nil {
		t.Errorf("it still hides what is below: %d", n)
	}
	Uncover(filepath.Join(upper, "missing")) // is nothing to speak of
}
