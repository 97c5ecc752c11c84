package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHiddenPathsAreHiddenAtOtherMounts checks that a hidden path is hidden wherever its file system shows it: through a
// mount of a directory around it, of itself and of a part of it.
func TestHiddenPathsAreHiddenAtOtherMounts(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newLab(t)
	home := filepath.Join(l.dir, "home")
	for _, name := range []string{".netrc", ".ssh/id", ".ssh/old/id", "vault/key"} {
		l.write(filepath.Join(home, name), fakeSecret)
	}
	l.write(filepath.Join(home, "vault/open"), "open")
	l.git("config", "--global", "agency.sandbox.hide", "~/vault/key")
	l.git("config", "--global", "agency.sandbox.home", "readonly")
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

// TestPrivateHomeIsHiddenAtOtherMounts checks that neither the home nor an integration tree can be read where another
// mount shows them.
func TestPrivateHomeIsHiddenAtOtherMounts(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newLab(t)
	home, elsewhere := filepath.Join(l.dir, "home"), "/mnt"
	l.write(filepath.Join(home, "notes"), fakeSecret)
	l.write(filepath.Join(home, "deep/notes"), fakeSecret)
	l.write(filepath.Join(l.repo, ".env"), fakeSecret)
	if err := unix.Mount("none", elsewhere, "tmpfs", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	for _, m := range [][2]string{{home, "home"}, {home + "/deep", "part"}, {l.dir, "around"}, {l.repo, "repo"}} {
		to := filepath.Join(elsewhere, m[1])
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(m[0], to, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	w := newWalledSandboxIn(l)
	if got := w.runInside("grep -rls " + fakeSecret + " ~ " + elsewhere + " " + l.repo + " || true"); got != "" {
		t.Errorf("these files can be read:\n%s", got)
	}
	w.agency("discard", w.id)
}

// TestHiddenPathsStayHiddenWhenReplaced replaces hidden files and directories outside while a command runs, as programs
// do that write a new file and rename it. The command must not see the new ones, and must see other changes.
func TestHiddenPathsStayHiddenWhenReplaced(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	replaceHiddenPaths(t, newLab(t))
}

// TestHiddenPathsStayHiddenWhenReplacedBesideMount does the same with a mount in the home, over which the kernel allows
// no overlay.
func TestHiddenPathsStayHiddenWhenReplacedBesideMount(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newLab(t)
	point := filepath.Join(l.dir, "home", ".config", "mnt")
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	l.write(filepath.Join(point, "file"), "mounted")
	l.git("config", "--global", "github.token", fakeSecret)
	l.git("config", "--global", "alias.st", "status")
	w := replaceHiddenPaths(t, l)
	if got := w.runInside("cat ~/.config/mnt/file; git config alias.st"); got != "mountedstatus" {
		t.Errorf("the file in the mount and the setting of git are %q", got)
	}
}

func replaceHiddenPaths(t *testing.T, l *lab) *walledSandbox {
	t.Helper()
	home := filepath.Join(l.dir, "home")
	secrets := []string{".git-credentials", ".ssh/id", ".config/gh/hosts.yml", ".docker/config.json", "vault/deep/key"}
	for _, name := range secrets {
		l.write(filepath.Join(home, name), "old "+fakeSecret)
	}
	for _, name := range []string{"notes/a", ".config/tool/settings", "vault/deep/open", "vault/beside/a", ".granted/a", ".profile"} {
		l.write(filepath.Join(home, name), "open\n")
	}
	if err := os.Symlink("notes/a", filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	l.git("config", "--global", "agency.sandbox.hide", "~/vault/deep/key")
	l.git("config", "--global", "agency.sandbox.home", "readonly")
	l.git("config", "--global", "agency.sandbox.read", "~/.granted")
	w := newWalledSandboxIn(l)
	look := "ls ~/moved-* >/dev/null 2>&1 || true; cat ~/notes/a ~/.config/tool/settings ~/vault/deep/open ~/vault/beside/a ~/.granted/a ~/.profile ~/link >.notes/seen; grep -rl " + fakeSecret + " ~ >.notes/secret || true"
	cmd := w.startInside("a", look, look)
	seen := func(want string) {
		t.Helper()
		if got := l.read(filepath.Join(w.tree, ".notes/secret")); got != "" {
			t.Errorf("these files can be read:\n%s", got)
		}
		if got := strings.ReplaceAll(l.read(filepath.Join(w.tree, ".notes/seen")), "\n", " "); got != want {
			t.Errorf("saw %q, want %q", got, want)
		}
	}
	seen("open open open open open open open ")
	for _, name := range secrets { // by a rename of the file
		replaceFile(t, filepath.Join(home, name), "new "+fakeSecret)
	}
	for _, name := range []string{".ssh/id", ".docker/config.json", "vault/deep/key"} { // by a rename of the directory
		dir := filepath.Dir(name)
		if err := os.Remove(filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(home, dir), filepath.Join(home, "moved-"+strings.TrimPrefix(filepath.Base(dir), "."))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range secrets[1:] {
		l.write(filepath.Join(home, name), "newest "+fakeSecret)
	}
	l.write(filepath.Join(home, "vault/deep/open"), "open\n")
	for _, name := range []string{"notes/a", "vault/beside/a", ".granted/a"} { // directories without secrets show every change
		replaceFile(t, filepath.Join(home, name), "changed\n")
	}
	w.resume("a")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	seen("changed open open changed changed open changed ")
	if got := w.runInside(look + "; cat .notes/secret"); got != "" {
		t.Errorf("the next command can read:\n%s", got)
	}
	return w
}

// replaceFile writes a file beside path and renames it to path.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
