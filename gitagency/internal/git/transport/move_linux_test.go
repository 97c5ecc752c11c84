package transport

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The directory of packs may be on another file system than the quarantine.
func TestMovePackToAnotherFileSystem(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	to, err := os.MkdirTemp("/dev/shm", "git-agency-test-*")
	if err != nil {
		t.Skip("no other file system: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(to) })
	var a, b unix.Stat_t
	if err := unix.Stat(from, &a); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(to, &b); err != nil {
		t.Fatal(err)
	}
	if a.Dev == b.Dev {
		t.Skip("/dev/shm is on the file system of the temporary directory")
	}
	for _, name := range []string{"pack-1.pack", "pack-1.idx"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := movePack(from, to); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pack-1.pack", "pack-1.idx"} {
		data, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(data) != name {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if fi, err := os.Stat(filepath.Join(to, name)); err != nil || fi.Mode().Perm() != 0o444 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	for dir, want := range map[string]int{from: 0, to: 2} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != want {
			t.Errorf("%s has %v, %v; want %d files", dir, left, err, want)
		}
	}
}
