package overlay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// RemoveObjectWhiteouts must remove the whiteouts and opaque marks that hide objects, and keep all other whiteouts.
func TestRemoveObjectWhiteoutsKeepsOtherWhiteouts(t *testing.T) {
	t.Parallel()
	upper := t.TempDir()
	for _, dir := range []string{"objects/ab", "objects/pack", "objects/info", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removed := map[string]bool{"objects/cd": true, "objects/ab/1234": true, "objects/pack/pack-1.idx": true, "refs/heads/main": false, "objects/info/packs": false}
	for name := range removed {
		if err := unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR, 0); err != nil {
			t.Skipf("cannot create whiteouts: %v", err)
		}
	}
	opaque := filepath.Join(upper, "objects", "ab")
	if err := unix.Setxattr(opaque, "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("cannot set the opaque mark: %v", err)
	}
	if err := os.WriteFile(filepath.Join(opaque, "5678"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	stamp := filepath.Join(t.TempDir(), "looked")
	RemoveObjectWhiteouts(upper, stamp)
	for name, want := range removed {
		if _, err := os.Lstat(filepath.Join(upper, name)); os.IsNotExist(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(opaque, "5678")); err != nil {
		t.Error(err)
	}
	if n, err := unix.Getxattr(opaque, "user.overlay.opaque", nil); err == nil {
		t.Errorf("the opaque mark is left: %d bytes", n)
	}
	RemoveObjectWhiteouts(filepath.Join(upper, "missing"), stamp) // does nothing
}

// RemoveObjectWhiteouts must scan a directory that changed since the last run, whatever mtime the sandbox gave it, and
// skip the others.
func TestRemoveObjectWhiteoutsScansChangedDirectories(t *testing.T) {
	t.Parallel()
	upper, stamp := t.TempDir(), filepath.Join(t.TempDir(), "looked")
	for _, dir := range []string{"objects/ab", "objects/cd"} {
		if err := os.MkdirAll(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hide := func(name string) {
		t.Helper()
		path := filepath.Join(upper, "objects", name)
		if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
			t.Skipf("cannot create whiteouts: %v", err)
		}
		if err := os.Chtimes(filepath.Dir(path), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	hidden := func(name string) bool {
		_, err := os.Lstat(filepath.Join(upper, "objects", name))
		return err == nil
	}
	RemoveObjectWhiteouts(upper, stamp)
	hide("ab/12")
	RemoveObjectWhiteouts(upper, stamp)
	if hidden("ab/12") {
		t.Error("a new whiteout was not removed")
	}
	hide("cd/34")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(stamp, later, later); err != nil {
		t.Fatal(err)
	}
	RemoveObjectWhiteouts(upper, stamp)
	if hidden("cd/34") {
		t.Error("with a stamp file in the future a new whiteout was not removed")
	}
	u := whiteoutRemover{since: later} // all directories are older
	root, err := OpenDirAt(unix.AT_FDCWD, filepath.Join(upper, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	if u.hasChanged(root, "ab") {
		t.Error("a directory older than the last run counts as changed")
	}
}
