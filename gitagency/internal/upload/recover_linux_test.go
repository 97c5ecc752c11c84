package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// rerunLimited runs the test again in a process that may open 256 files and, if the tests run as root, belongs to an
// unprivileged user. It reports whether this is that process.
func rerunLimited(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TEST_RERUN") != "" {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}))
		return true
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	// Copied by cp: if this process wrote it, a child forked meanwhile could hold it open for writing (ETXTBSY).
	must(t, exec.CommandContext(t.Context(), "cp", exe, filepath.Join(dir, "test")).Run())
	exe = filepath.Join(dir, "test")
	must(t, os.Chmod(exe, 0o755))
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_RERUN=1", "TMPDIR="+mkdir(t, dir, "tmp"))
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		must(t, os.Chown(filepath.Join(dir, "tmp"), nobody, nobody))
		for _, d := range []string{dir, filepath.Dir(dir)} {
			must(t, os.Chmod(d, 0o755))
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// makeDeepDirs makes nested directories, possibly deeper than PATH_MAX.
func makeDeepDirs(t *testing.T, levels int, parts ...string) {
	t.Helper()
	at, err := unix.Open(mkdir(t, parts...), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, "d", 0o700))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
}

func identityOf(t *testing.T, path string) identity {
	t.Helper()
	fi, err := os.Lstat(path)
	must(t, err)
	st := fi.Sys().(*syscall.Stat_t)
	return identity{Device: uint64(st.Dev), Inode: st.Ino, Modified: fi.ModTime().UnixNano()}
}

// TestRecoverIgnoresForgedStage: an agent can write into the stage. Recover must neither act outside the tree for it nor
// fail.
func TestRecoverIgnoresForgedStage(t *testing.T) {
	t.Parallel()
	rerunLimited(t)
	tree, outside := newTree(t)
	git := write(t, "gitdir: x", tree.Path, ".git")
	secret, gitFile, marker := identityOf(t, filepath.Join(outside, "file")), identityOf(t, git), identityOf(t, guard.Sandbox.Path(tree.Path))
	entry := func(path string, id identity) string {
		return fmt.Sprintf(`{"made":[{"path":%q,"dev":%d,"ino":%d,"mtime":%d}]}`, path, id.Device, id.Inode, id.Modified)
	}
	link(t, outside, tree.Path, "out")
	before, out := describeTree(t, tree.Path), describeTree(t, outside)
	agency := filepath.Join(tree.Path, guard.AgencyDir)
	stage := filepath.Join(agency, "put-x")
	for name, forge := range map[string]func(){
		"a path with ..":        func() { write(t, entry("../outside/file", secret), stage, planName) },
		"a path through a link": func() { write(t, entry("out/file", secret), stage, planName) },
		"the .git file":         func() { write(t, entry(".git", gitFile), stage, planName) },
		"the marker":            func() { write(t, entry(".agency/SANDBOX_MARKER", marker), stage, planName) },
		"a FIFO as plan":        func() { fifo(t, stage, planName) },
		"a symlink as plan":     func() { link(t, filepath.Join(outside, "file"), stage, planName) },
		"invalid JSON types":    func() { write(t, `{"made":[{"path":7}]}`, stage, planName) },
		"an unreadable plan":    func() { must(t, os.Chmod(write(t, "{}", stage, planName), 0)) },
		"a directory as plan":   func() { mkdir(t, stage, planName) },
		"reserved names in old": func() {
			write(t, "evil", stage, oldDirName, ".git")
			write(t, "evil", stage, oldDirName, ".agency", "INTEGRATION_MARKER")
			write(t, "evil", stage, oldDirName, "out", "evil")
		},
		"a symlink as old":  func() { mkdir(t, stage); link(t, outside, stage, oldDirName) },
		"a FIFO as old":     func() { fifo(t, stage, oldDirName) },
		"a file as old":     func() { write(t, "", stage, oldDirName) },
		"unreadable old":    func() { must(t, os.Chmod(mkdir(t, stage, oldDirName), 0)) },
		"unreadable in old": func() { must(t, os.Chmod(mkdir(t, stage, oldDirName, "d"), 0)) },
		"read-only in old": func() {
			write(t, "", stage, oldDirName, "a", "b")
			must(t, os.Chmod(filepath.Join(stage, oldDirName, "a"), 0o500))
		},
		"unreadable stage":   func() { must(t, os.Chmod(mkdir(t, stage), 0)) },
		"unreadable .agency": func() { mkdir(t, stage); must(t, os.Chmod(agency, 0)) },
		"too deep in old":    func() { makeDeepDirs(t, 1000, stage, oldDirName) },
		"too deep in new":    func() { makeDeepDirs(t, 1000, stage, newDirName) },
	} {
		forge()
		if err := Recover(t.Context(), targetOf(tree), -1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.Chmod(agency, 0o755))
		if after := describeTree(t, tree.Path); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", name, before, after)
		}
		if describeTree(t, outside) != out {
			t.Fatalf("%s: files outside changed", name)
		}
	}
	link(t, outside, agency, "put-y")
	must(t, putFiles(t, tree, textFile("x", "")))
	if describeTree(t, outside) != out {
		t.Error("files outside changed")
	}
	must(t, os.RemoveAll(agency))
	for name, forge := range map[string]func(){
		"a pipe": func() { fifo(t, agency) }, "a file": func() { write(t, "", agency) }, "a link": func() { link(t, outside, agency) },
	} {
		forge()
		if err := Recover(t.Context(), targetOf(tree), -1); err != nil {
			t.Errorf(".agency is %s: %v", name, err)
		}
		must(t, os.Remove(agency))
	}
}

// TestRecoverRestoresReplacedOrKeepsIt changes the permissions of directories after a killed put: Recover restores the
// replaced files, or keeps them and reports it.
func TestRecoverRestoresReplacedOrKeepsIt(t *testing.T) {
	t.Parallel()
	ordinary := rerunLimited(t) || os.Geteuid() != 0
	tree, files := newMixedTree(t)
	before := describeTree(t, tree.Path)
	killedPut(t, tree, files, "done:before")
	d := filepath.Join(tree.Path, "d")
	must(t, os.Chmod(d, 0o555))
	must(t, Recover(t.Context(), targetOf(tree), -1))
	must(t, os.Chmod(d, 0o755))
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("with a read-only directory:\n%s\n%s", before, after)
	}
	if !ordinary {
		return // permissions do not apply to root
	}
	killedPut(t, tree, files, "done:before")
	must(t, os.Chmod(d, 0))
	var left *IncompleteUndoError
	if err := Recover(t.Context(), targetOf(tree), -1); !errors.As(err, &left) || left.Files != 3 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("with an unreadable directory: %v", err)
	}
	if err := putFiles(t, tree, textFile("meanwhile", "")); err != nil {
		t.Errorf("another put: %v", err)
	}
	must(t, os.Remove(filepath.Join(tree.Path, "meanwhile")))
	must(t, os.Chmod(d, 0o755))
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("after the permissions were restored:\n%s\n%s", before, after)
	}
}

// TestPutDoesNotExhaustDescriptors puts into more directories than the process may open.
func TestPutDoesNotExhaustDescriptors(t *testing.T) {
	t.Parallel()
	if !rerunLimited(t) {
		return
	}
	tree, _ := newTree(t)
	var files []File
	for i := range 450 {
		write(t, "old", tree.Path, fmt.Sprintf("d%d", i), "f")
		files = append(files, textFile(fmt.Sprintf("d%d/f", i), "new"))
	}
	down := strings.Repeat("d/", 150)
	write(t, "old", tree.Path, down, "f")
	files = append(files, textFile(down+"f", "new"), textFile("new/"+down+"f", "new"))
	before := describeTree(t, tree.Path)
	killedPut(t, tree, files, "done:before")
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if describeTree(t, tree.Path) != before {
		t.Error("the killed put was not undone")
	}
	must(t, putFiles(t, tree, files...))
	if readFile(t, tree.Path, "d449", "f") != "new" || readFile(t, tree.Path, down, "f") != "new" {
		t.Error("the files were not put")
	}
	if left := listNames(t, tree.Path, guard.AgencyDir); !slices.Equal(left, []string{guard.Sandbox.Name}) {
		t.Errorf("left: %q", left)
	}
}

// TestPutNeverWritesThroughFilesInStage places hard links to a file outside into the stage while Put prepares it.
func TestPutNeverWritesThroughFilesInStage(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	before := describeTree(t, outside)
	plant := func(name string) {
		stages, err := filepath.Glob(filepath.Join(tree.Path, guard.AgencyDir, stagePrefix+"*"))
		must(t, err)
		must(t, os.Link(filepath.Join(outside, "file"), filepath.Join(stages[0], name)))
	}
	tx := &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at == "plan:before" {
			plant(planName + ".tmp")
			plant(planName)
		}
		return nil
	}}
	must(t, Put(t.Context(), targetOf(tree), tx, []File{textFile("a", "1")}, nil))
	tx = &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at == "stage:before" {
			plant(newDirName + "/a")
		}
		return nil
	}}
	if err := Put(t.Context(), targetOf(tree), tx, []File{textFile("a", "2")}, nil); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if readFile(t, tree.Path, "a") != "1" || describeTree(t, outside) != before {
		t.Error("a file outside was written to")
	}
}

// TestRecoverBoundsForgedPlan: Recover stops in a long plan when its context ends, and ignores a plan that is too large.
func TestRecoverBoundsForgedPlan(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	stage := filepath.Join(tree.Path, guard.AgencyDir, "put-x")
	entry := `{"path":"a/b","dev":1,"ino":2},`
	plan := `{"made":[` + strings.Repeat(entry, 20000) + `{"path":"a","dev":1,"ino":2}]}`
	write(t, plan, stage, planName)
	ctx := &cancelAfter{Context: t.Context(), limit: 30000} // ends while the plan is processed
	if err := Recover(ctx, targetOf(tree), -1); !errors.Is(err, context.Canceled) || !exists(stage) {
		t.Error(err)
	}
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if exists(stage) {
		t.Error("the stage is still there")
	}
	mine := write(t, "mine", tree.Path, "mine")
	id := identityOf(t, mine)
	last := fmt.Sprintf(`{"path":"mine","dev":%d,"ino":%d,"mtime":%d}]}`, id.Device, id.Inode, id.Modified)
	write(t, `{"made":[`+strings.Repeat(" ", maxPlanBytes)+last, stage, planName)
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if !exists(mine) || exists(stage) {
		t.Error("a plan that is too large was followed")
	}
}

// cancelAfter is a context that is cancelled after a number of calls of Err.
type cancelAfter struct {
	context.Context
	limit, calls int
}

func (c *cancelAfter) Err() error {
	if c.calls++; c.calls > c.limit {
		return context.Canceled
	}
	return c.Context.Err()
}
