package overlay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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
	looked := filepath.Join(t.TempDir(), "looked")
	RemoveObjectWhiteouts(upper, looked)
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
	RemoveObjectWhiteouts(filepath.Join(upper, "missing"), looked) // is nothing to speak of
}

// What has not changed is not looked at again, and what has changed is, whatever whoever changed it says.
func TestUncoverLooksAtWhatHasChanged(t *testing.T) {
	t.Parallel()
	upper, looked := t.TempDir(), filepath.Join(t.TempDir(), "looked")
	for _, dir := range []string{"objects/ab", "objects/cd"} {
		if err := os.MkdirAll(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hide := func(name string) {
		t.Helper()
		path := filepath.Join(upper, "objects", name)
		if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
			t.Skipf("no such files can be made here: %v", err)
		}
		if err := os.Chtimes(filepath.Dir(path), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	hidden := func(name string) bool {
		_, err := os.Lstat(filepath.Join(upper, "objects", name))
		return err == nil
	}
	RemoveObjectWhiteouts(upper, looked)
	hide("ab/12")
	RemoveObjectWhiteouts(upper, looked)
	if hidden("ab/12") {
		t.Error("what was hidden since is still hidden")
	}
	hide("cd/34")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(looked, later, later); err != nil {
		t.Fatal(err)
	}
	RemoveObjectWhiteouts(upper, looked)
	if hidden("cd/34") {
		t.Error("a clock that was set back hides what was hidden since")
	}
	u := whiteoutRemover{since: later} // as if all of that were old
	root, err := OpenDirAt(unix.AT_FDCWD, filepath.Join(upper, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	if u.hasChanged(root, "ab") {
		t.Error("what is older than the last look was looked at")
	}
}
