package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// rerun runs one test of this binary again, under other circumstances, and fails if that fails. The
// variable TEST_RERUN tells the test that it is there.
func rerun(t *testing.T, dir string, attr *syscall.SysProcAttr, exe, test string) (skip string) {
	t.Helper()
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	cmd.Env = append(os.Environ(), "TEST_RERUN=1", "TMPDIR="+tmp)
	if attr.Credential != nil {
		for p := tmp; ; p = filepath.Dir(p) {
			if err := os.Chown(p, int(attr.Credential.Uid), int(attr.Credential.Gid)); err != nil {
				t.Fatal(err)
			}
			if filepath.Dir(p) == filepath.Clean(os.TempDir()) {
				break
			}
		}
	}
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case err != nil && len(out) == 0:
		return err.Error() // it could not even be started like this
	case err != nil:
		t.Fatalf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP"):
		return text
	case !strings.Contains(text, "--- PASS: "+test):
		t.Fatalf("it did not run:\n%s", text)
	}
	return ""
}

// Much of this code behaves differently as root, who may read and remove everything.
func TestTheScriptsHoldForAnOrdinaryUserToo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestScripts runs as an ordinary user already")
	}
	skipRerunIfShort(t)
	rerunAsNobody(t, "TestScripts")
}

// skipRerunIfShort skips what runs a test again as an ordinary user.
func skipRerunIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: run the tests as an ordinary user instead")
	}
}

// rerunAsNobody runs one test of this binary again, in a copy that an ordinary user can reach.
func rerunAsNobody(t *testing.T, test string) {
	t.Helper()
	house := t.TempDir()
	home := filepath.Join(house, "cmd", "git-agency")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{house, filepath.Dir(house)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{exe: filepath.Join(home, "test"), filepath.Join("..", "..", "testdata"): filepath.Join(house, "testdata")} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const nobody = 65534
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if skip := rerun(t, home, attr, filepath.Join(home, "test"), test); skip != "" {
		t.Errorf("skipped as an ordinary user: %s", skip)
	}
}

// The disk, repository and records alike, has room for less and less; every start that fails leaves
// what was there.
func TestAFullDiskLeavesTheWorldAsItWas(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if skip := rerun(t, ".", ownMounts(), exe, t.Name()); skip != "" {
			t.Skipf("no file system of our own to fill here: %s", skip)
		}
		return
	}

	dir := filepath.Join(os.Getenv("TMPDIR"), "disk")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	l := newLabIn(t, dir)
	l.write(filepath.Join(l.repo, "big"), strings.Repeat("0123456789abcdef\n", 4000))
	l.git("add", ".")
	l.git("commit", "-q", "-m", "big")
	l.agency("worktree", "create", "wt")
	filler := filepath.Join(dir, "filler")

	failures := 0
	for room := 0; ; room += 2 {
		l.fill(filler, room)
		before := l.world()
		o := l.try(nil, "git-agency", "start", "wt")
		if o.code == 0 {
			if failures < 10 {
				t.Errorf("it failed only %d times before there was room", failures)
			}
			l.putOnAFullDisk(filler, o.line())
			l.discardOnAFullDisk(filler, o.line())
			return
		}
		failures++
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("with room for %d blocks: ended with %d: %s", room, o.code, o.stderr)
		}
		if d := diff(before, l.world()); d != "" {
			t.Fatalf("with room for %d blocks the world changed:\n%s", room, d)
		}
		if room > 500 {
			t.Fatalf("still no room: %s", o.stderr)
		}
	}
}

// putOnAFullDisk: half a put is none.
func (l *lab) putOnAFullDisk(filler, id string) {
	l.t.Helper()
	failures := 0
	for room := 0; ; room += 5 {
		l.fill(filler, room)
		before := l.world()
		o := l.try(nil, "git-agency", "put", id, "readme", "sub", "big", "new/")
		if o.code == 0 {
			break
		}
		failures++
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") || !strings.Contains(o.stderr, "the disk is full") {
			l.t.Errorf("with room for %d blocks: ended with %d: %s", room, o.code, o.stderr)
		}
		if d := diff(before, l.world()); d != "" || room > 500 {
			l.t.Fatalf("with room for %d blocks the world changed:\n%s", room, d)
		}
	}
	if failures < 3 {
		l.t.Errorf("it failed only %d times before there was room", failures)
	}
}

// discardOnAFullDisk: what cannot be kept is not thrown away.
func (l *lab) discardOnAFullDisk(filler, id string) {
	l.t.Helper()
	tree := l.agency("path", id)
	l.fill(filler, 30)
	l.write(filepath.Join(tree, "precious"), "p\n")
	for room := 0; ; room++ {
		l.fill(filler, room)
		o := l.try(nil, "git-agency", "discard", id)
		if o.code == 0 {
			break
		}
		if room > 500 {
			l.t.Fatalf("still no room: %s", o.stderr)
		}
		kept := l.try(nil, "git", "show", "refs/agency/trash/"+id+":precious").stdout == "p\n"
		if !kept && l.read(filepath.Join(tree, "precious")) != "p\n" {
			l.t.Fatalf("with room for %d blocks precious work was lost: %s", room, o.stderr)
		}
	}
	if got := l.git("show", "refs/agency/trash/"+id+":precious"); got != "p" {
		l.t.Errorf("kept %q", got)
	}
	if exists(tree) {
		l.t.Error("the tree is still there")
	}
	l.fill(filler, 100)
	l.checkRepository()
}

// fill leaves room for so many blocks on the disk.
func (l *lab) fill(filler string, blocks int) {
	l.t.Helper()
	if err := os.RemoveAll(filler); err != nil {
		l.t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(filler), &st); err != nil {
		l.t.Fatal(err)
	}
	size := (int64(st.Bfree) - int64(blocks)) * st.Bsize
	if size < 0 {
		l.t.Fatalf("there is only room for %d blocks", st.Bfree)
	}
	if err := os.WriteFile(filler, make([]byte, size), 0o600); err != nil {
		l.t.Fatal(err)
	}
}
