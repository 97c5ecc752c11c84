package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// rerunTest runs one test of this binary in a child process with the attributes attr and fails if that run fails. It
// returns the reason when the child was skipped or could not be started. TEST_RERUN=1 tells the test that it is the child.
func rerunTest(t *testing.T, dir string, attr *syscall.SysProcAttr, exe, test string) (skip string) {
	t.Helper()
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v", "-test.short="+strconv.FormatBool(testing.Short()))
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
		return err.Error() // the kernel refused to start a process with these attributes
	case err != nil:
		t.Fatalf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP"):
		return text
	case !strings.Contains(text, "--- PASS: "+test):
		t.Fatalf("%s did not run:\n%s", test, text)
	}
	return ""
}

// TestOrdinaryUserPassesScripts runs TestScripts as an ordinary user, because root may read and remove every file. Its
// name must not begin with TestScripts: "go test -run TestScripts/…" would run it too.
func TestOrdinaryUserPassesScripts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestScripts runs as an ordinary user already")
	}
	skipRerunIfShort(t)
	rerunAsNobody(t, "TestScripts")
}

// skipRerunIfShort skips a rerun as an ordinary user with -short.
func skipRerunIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: run the tests as an ordinary user instead")
	}
}

// rerunAsNobody runs one test of this binary as the user nobody, from a copy in a directory which that user can read.
func rerunAsNobody(t *testing.T, test string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "cmd", "git-agency")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{root, filepath.Dir(root)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{exe: filepath.Join(dir, "test"), filepath.Join("..", "..", "testdata"): filepath.Join(root, "testdata")} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const nobody = 65534
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if skip := rerunTest(t, dir, attr, filepath.Join(dir, "test"), test); skip != "" {
		t.Errorf("skipped as an ordinary user: %s", skip)
	}
}

// TestFullDiskLeavesFilesUnchanged runs commands on a full file system that holds the repository and the records, with
// more free blocks in every round. A command that fails for lack of space must leave all files as they were.
func TestFullDiskLeavesFilesUnchanged(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if skip := rerunTest(t, ".", newMountNamespace(), exe, t.Name()); skip != "" {
			t.Skipf("cannot mount a file system to fill: %s", skip)
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

	id := l.checkStartOnFullDisk(filler, "worktree")
	l.checkRefsOnFullDisk(filler, "snapshot", "create", id)
	l.checkRefsOnFullDisk(filler, "worktree", "create", "other")
	l.checkPutOnFullDisk(filler, id)
	l.checkDiscardOnFullDisk(filler, id)
	for _, kind := range []string{"clone", "overlay"} {
		if !testing.Short() {
			id := l.checkStartOnFullDisk(filler, kind)
			l.fillDisk(filler, 100)
			l.agency("discard", id)
		}
	}
	l.fillDisk(filler, 100)
	work := l.agency("start", "wt", "--isolation", "none")
	l.agency("exec", work, "--", "sh", "-c", "echo work >work; git add work; git commit -qm work")
	l.checkRefsOnFullDisk(filler, "land", work)
}

// checkStartOnFullDisk checks that a start which runs out of space changes no file, until one has enough, and returns the id of
// that sandbox.
func (l *lab) checkStartOnFullDisk(filler, kind string) (id string) {
	l.t.Helper()
	failures, step := 0, 1
	if testing.Short() {
		step = 3
	}
	for room := 0; ; room += step {
		l.fillDisk(filler, room)
		before := l.dump()
		o := l.try(nil, "git-agency", "start", "wt", "--changeset", kind)
		if o.code == 0 {
			if failures < 10 {
				l.t.Errorf("start of a %s failed only %d times before there was enough space", kind, failures)
			}
			return o.line()
		}
		failures++
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			l.t.Errorf("%s with %d free blocks: exited with %d: %s", kind, room, o.code, o.stderr)
		}
		if d := dumpDiff(before, l.dump()); d != "" {
			l.t.Fatalf("%s with %d free blocks: files changed:\n%s", kind, room, d)
		}
		if room > 500 {
			l.t.Fatalf("no success with 500 free blocks: %s", o.stderr)
		}
	}
}

// checkRefsOnFullDisk checks that a command which runs out of space leaves no ref, reflog or lock, until it succeeds.
func (l *lab) checkRefsOnFullDisk(filler string, command ...string) {
	l.t.Helper()
	ofRefs := func() string {
		var lines []string
		for line := range strings.Lines(l.dump()) {
			if strings.Contains(line, ".git/refs/") || strings.Contains(line, ".git/logs/") || strings.Contains(line, ".lock") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	failures := 0
	for room := 0; ; room++ {
		l.fillDisk(filler, room)
		before := ofRefs()
		o := l.try(nil, append([]string{"git-agency"}, command...)...)
		if o.code == 0 {
			break
		}
		failures++
		if d := dumpDiff(before, ofRefs()); d != "" || room > 500 {
			l.t.Fatalf("%q with %d free blocks: refs changed:\n%s%s", command, room, d, o.stderr)
		}
	}
	if failures < 3 {
		l.t.Errorf("%q failed only %d times before there was enough space", command, failures)
	}
}

// checkPutOnFullDisk checks that a put which runs out of space changes no file, until one has enough space.
func (l *lab) checkPutOnFullDisk(filler, id string) {
	l.t.Helper()
	failures := 0
	for room := 0; ; room += 5 {
		l.fillDisk(filler, room)
		before := l.dump()
		o := l.try(nil, "git-agency", "put", id, "readme", "sub", "big", "new/")
		if o.code == 0 {
			break
		}
		failures++
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") || !strings.Contains(o.stderr, "the disk is full") {
			l.t.Errorf("with %d free blocks: exited with %d: %s", room, o.code, o.stderr)
		}
		if d := dumpDiff(before, l.dump()); d != "" || room > 500 {
			l.t.Fatalf("with %d free blocks: files changed:\n%s", room, d)
		}
	}
	if failures < 3 {
		l.t.Errorf("put failed only %d times before there was enough space", failures)
	}
}

// checkDiscardOnFullDisk checks that a discard which runs out of space does not remove files that are not in the trash.
func (l *lab) checkDiscardOnFullDisk(filler, id string) {
	l.t.Helper()
	tree := l.agency("path", id)
	l.fillDisk(filler, 30)
	l.write(filepath.Join(tree, "precious"), "p\n")
	for room := 0; ; room++ {
		l.fillDisk(filler, room)
		o := l.try(nil, "git-agency", "discard", id)
		if o.code == 0 {
			break
		}
		if room > 500 {
			l.t.Fatalf("no success with 500 free blocks: %s", o.stderr)
		}
		kept := l.try(nil, "git", "show", "refs/agency/trash/"+id+":precious").stdout == "p\n"
		if !kept && l.read(filepath.Join(tree, "precious")) != "p\n" {
			l.t.Fatalf("with %d free blocks: the file precious was lost: %s", room, o.stderr)
		}
	}
	if got := l.git("show", "refs/agency/trash/"+id+":precious"); got != "p" {
		l.t.Errorf("precious in the trash is %q", got)
	}
	if exists(tree) {
		l.t.Error("the worktree of the sandbox is still there")
	}
	l.fillDisk(filler, 100)
	l.checkRepository()
}

// fillDisk writes a file that leaves the given number of free blocks on the file system.
func (l *lab) fillDisk(filler string, blocks int) {
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
		l.t.Fatalf("only %d blocks are free", st.Bfree)
	}
	if err := os.WriteFile(filler, make([]byte, size), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// rerunInMountNamespace runs the calling test again in its own mount namespace, and reports whether this is the call that
// has done so: the test then returns.
func rerunInMountNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TEST_RERUN") != "" {
		return false
	}
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if skip := rerunTest(t, ".", newMountNamespace(), exe, t.Name()); skip != "" {
		t.Skipf("mounting is not permitted: %s", skip)
	}
	return true
}
