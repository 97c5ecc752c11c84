package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makeRoot creates a root file system with symbolic links that would lead out of it.
func makeRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"usr/bin/sh": 0o755, "usr/bin/data": 0o644, "etc/secret": 0o644} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"bin": "/usr/bin", "usr/bin/up": "../../../../usr/bin/sh", "usr/bin/host": "/proc/self/exe", "usr/bin/loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLookPathStaysInRoot(t *testing.T) {
	dir := makeRoot(t)
	for program, want := range map[string]string{
		"sh": "/usr/bin/sh", "up": "/usr/bin/up", "/bin/sh": "/bin/sh", "/usr/bin/up": "/usr/bin/up",
		"data": "", "host": "", "loop": "", "none": "", "/usr/bin": "", "./sh": "", "a/b": "",
	} {
		got, err := LookPath(dir, Path, program)
		if (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("LookPath(%q) = %q, %v; want %q", program, got, err, want)
		}
	}
	if got, err := LookPath(dir, "bin:", "sh"); err == nil {
		t.Errorf("a relative element of PATH found %s", got)
	}
}

func TestCheckNamesReason(t *testing.T) {
	dir := makeRoot(t)
	if err := Check(dir); err != nil {
		t.Errorf("Check: %v", err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "does not exist", filepath.Join(dir, "etc/secret"): "no directory", filepath.Join(dir, "etc"): "no root file system",
	} {
		if err := Check(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%s) = %v, want %q", path, err, want)
		}
	}
}

func TestNameUserCompletesLists(t *testing.T) {
	u := User{UID: 1234, GID: 5678, Name: "ann", Home: "/home/ann"}
	for name, c := range map[string]struct{ passwd, group, wantPasswd, wantGroup string }{
		"missing":         {"", "", "ann:x:1234:5678::/home/ann:/bin/sh\n", "ann:x:5678:\n"},
		"without newline": {"root:x:0:0::/root:/bin/sh", "root:x:0:", "root:x:0:0::/root:/bin/sh\nann:x:1234:5678::/home/ann:/bin/sh\n", "root:x:0:\nann:x:5678:\n"},
		"name is used":    {"ann:x:7:7::/:/bin/sh\n", "ann:x:7:\n", "ann:x:7:7::/:/bin/sh\nu1234:x:1234:5678::/home/ann:/bin/sh\n", "ann:x:7:\nu5678:x:5678:\n"},
		"known":           {"node:x:1234:5678::/home/node:/bin/sh\n", "node:x:5678:\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := makeRoot(t)
			for file, text := range map[string]string{"passwd": c.passwd, "group": c.group} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, "etc", file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]string{}
			for _, f := range NameUser(dir, u) {
				got[f.Path] = f.Text
			}
			if got["/etc/passwd"] != c.wantPasswd || got["/etc/group"] != c.wantGroup {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestNameUserWritesValidLines gives names that are no fields of a list.
func TestNameUserWritesValidLines(t *testing.T) {
	for _, f := range NameUser(makeRoot(t), User{UID: 7, GID: 8, Name: "a:b\nroot:x:0:0", Home: "/home\n/a"}) {
		if n := strings.Count(f.Text, "\n"); n != 1 || !strings.HasPrefix(f.Text, "u7:x:") && !strings.HasPrefix(f.Text, "u8:x:") {
			t.Errorf("%s is %q", f.Path, f.Text)
		}
	}
}

// TestReadFileRefusesOthers gives what is no file of a list.
func TestReadFileRefusesOthers(t *testing.T) {
	dir := makeRoot(t)
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if text, err := readFile(dir, "/etc/passwd", 10); err == nil {
		t.Errorf("a link out of the root was read: %q", text)
	}
	if text, err := readFile(dir, "/usr", 10); err == nil {
		t.Errorf("a directory was read: %q", text)
	}
	if _, err := readFile(dir, "/etc/secret", 0); err == nil {
		t.Error("a file that is too large was read")
	}
}
