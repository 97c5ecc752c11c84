package guard

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inMountNamespace reports whether the test runs in a mount namespace of its own. Otherwise it runs the test in a
// process with such a namespace, and fails if the test fails there.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "GUARD_TEST_MOUNTS"
	if os.Getenv(inside) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+t.Name(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState == nil:
		t.Skipf("skipped: bind mounts; no mount namespace here: %v", err)
	case strings.Contains(string(out), "skipped: "):
		t.Skipf("%s", out)
	case err != nil:
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", out)
	}
	return false
}

// bindMount bind-mounts from on to until the end of the test.
func bindMount(t *testing.T, from, to string) {
	t.Helper()
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("skipped: bind mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(to, syscall.MNT_DETACH) })
}

func TestRelationSeesThroughBindMount(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	root := tempDir(t)
	tree := mkdir(t, root, "tree")
	mkdir(t, tree, "sub")
	again := mkdir(t, root, "mnt", "again")
	bindMount(t, tree, again)
	for _, c := range []struct {
		place, tree string
		want        Relation
	}{
		{again, tree, Same},
		{tree, again, Same},
		{again + "/new", tree, Inside},
		{again + "/sub/new", tree, Inside},
		{tree + "/new", again, Inside},
		{root + "/mnt", again, Encloses},
		{tree, again + "/sub", Encloses},
		{root + "/mnt/other", tree, Disjoint},
	} {
		if got := mustLocate(t, c.place).Relation(c.tree); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.place, c.tree, got, c.want)
		}
	}
}

// TestRelationSeesThroughBindMountOfSubdirectory covers invariant 3: no sandbox path may equal, contain or lie inside an
// integration tree, by any spelling. The parents of a mount point are not the parents of the mounted directory, so they
// do not show that it lies inside the tree.
func TestRelationSeesThroughBindMountOfSubdirectory(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	root := tempDir(t)
	tree := mkdir(t, root, "tree")
	sub := mkdir(t, tree, "sub", "deep")
	mkdir(t, sub, "inner")
	again := mkdir(t, root, "mnt")
	bindMount(t, sub, again)
	for _, c := range []struct {
		place, tree string
		want        Relation
	}{
		{again, tree, Inside},              // is tree/sub/deep
		{again + "/new", tree, Inside},     // would be tree/sub/deep/new
		{tree, again + "/inner", Encloses}, // again/inner is tree/sub/deep/inner
		{tree + "/sub", again, Encloses},   //
		{root + "/other", again, Disjoint}, //
		{tree + "/other", again, Disjoint}, //
	} {
		if got := mustLocate(t, c.place).Relation(c.tree); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.place, c.tree, got, c.want)
		}
	}
}

// TestRelationSeesThroughBindMountWithAnyName: mountinfo escapes only space, tab, newline and backslash, so other
// Unicode spaces must not separate fields.
func TestRelationSeesThroughBindMountWithAnyName(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for _, name := range []string{"sp ace", "new\nline", "back\\slash", "\\040", "no-break\u00a0space", "carriage\rreturn", "form\ffeed", "ideographic\u3000space", "non\xffutf8"} {
		root := tempDir(t)
		tree := mkdir(t, root, "tree "+name)
		sub := mkdir(t, tree, "s "+name)
		again := mkdir(t, root, "mnt "+name)
		bindMount(t, sub, again)
		if got := mustLocate(t, again+"/new").Relation(tree); got != Inside {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// TestRelationIgnoresHiddenMount mounts over a directory that has a mount point below it.
func TestRelationIgnoresHiddenMount(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	root := tempDir(t)
	tree := mkdir(t, root, "tree", "sub")
	unrelated := mkdir(t, root, "unrelated")
	mkdir(t, root, "mnt", "x")
	mkdir(t, tree, "x")
	mkdir(t, unrelated, "x")
	bindMount(t, unrelated, root+"/mnt/x") // first on /mnt/x …
	bindMount(t, tree, root+"/mnt")        // … then on /mnt, so that /mnt/x is tree/sub/x
	if got := mustLocate(t, root+"/mnt/x/new").Relation(root + "/tree"); got != Inside {
		t.Errorf("it lies in tree/sub/x, got %q", got)
	}
	if got := mustLocate(t, root+"/mnt/x/new").Relation(unrelated); got != Disjoint {
		t.Errorf("it does not lie in unrelated, got %q", got)
	}
}
