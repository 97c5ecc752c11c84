package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHiddenPathsAreHiddenAtOtherMounts checks that a hidden path is hidden wherever its file system shows it: through a
// mount of a directory around it, of itself and of a part of it.
func TestHiddenPathsAreHiddenAtOtherMounts(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if skip := rerunTest(t, ".", newMountNamespace(), exe, t.Name()); skip != "" {
			t.Skipf("mounting is not permitted: %s", skip)
		}
		return
	}
	l := newLab(t)
	home := filepath.Join(l.dir, "home")
	for _, name := range []string{".netrc", ".ssh/id", ".ssh/old/id", "vault/key"} {
		l.write(filepath.Join(home, name), fakeSecret)
	}
	l.write(filepath.Join(home, "vault/open"), "open")
	l.git("config", "--global", "agency.sandbox.hide", "~/vault/key")
	for _, m := range [][2]string{{"vault", "mnt/vault"}, {".ssh", "mnt/keys"}, {".ssh/old", "mnt/part"}, {".netrc", "mnt/file"}, {".", "mnt/home"}} {
		from, to := filepath.Join(home, m[0]), filepath.Join(home, m[1])
		if m[0] == ".netrc" {
			l.write(to, "")
		} else if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	}
	w := newWalledSandboxIn(l)
	if got := w.runInside("cat ~/vault/open ~/mnt/vault/open ~/mnt/home/vault/open"); got != "openopenopen" {
		t.Errorf("files that are not hidden: %q", got)
	}
	if got := w.runInside("grep -rl " + fakeSecret + " ~ ~/mnt/home/.[ns]* ~/mnt/home/vault || true"); got != "" {
		t.Errorf("these files can be read:\n%s", got)
	}
	w.agency("discard", w.id)
}
