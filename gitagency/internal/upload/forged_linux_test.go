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

// poorly runs a test once more in a process of its own, which has few descriptors and, if we are root, is an
// ordinary user. It reports whether this is that process.
func poorly(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TEST_RERUN") != "" {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}))
		return true
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	// Were it written here, a process that is forked meanwhile could keep it from being run.
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

// deep makes directories in each other, further down than any path could say.
func deep(t *testing.T, levels int, parts ...string) {
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

// An agent can write what we go by. It must not get us to do what it could not do itself, nor to give up.
func TestAForgedStageReachesNothingAndIsGone(t *testing.T) {
	t.Parallel()
	poorly(t)
	tree, outside := newTree(t)
	git := write(t, "gitdir: x", tree.Path, ".git")
	secret, gitFile, marker := identityOf(t, filepath.Join(outside, "file")), identityOf(t, git), identityOf(t, guard.Sandbox.Path(tree.Path))
	entry := func(path string, id identity) string {
		return fmt.Sprintf(`{"made":[{"path":%q,"dev":%d,"ino":%d,"mtime":%d}]}`, path, id.Device, id.Inode, id.Modified)
	}
	link(t, outside, tree.Path, "out")
	before, out := state(t, tree.Path), state(t, outside)
	agency := filepath.Join(tree.Path, guard.AgencyDir)
	stage := filepath.Join(agency, "put-x")
	for name, forge := range map[string]func(){
		"a path that leads up":       func() { write(t, entry("../outside/file", secret), stage, planName) },
		"a path through a link":      func() { write(t, entry("out/file", secret), stage, planName) },
		"git":                        func() { write(t, entry(".git", gitFile), stage, planName) },
		"marker":                     func() { write(t, entry(".agency/SANDBOX_MARKER", marker), stage, planName) },
		"a pipe":                     func() { fifo(t, stage, planName) },
		"a link":                     func() { link(t, filepath.Join(outside, "file"), stage, planName) },
		"nonsense":                   func() { write(t, `{"made":[{"path":7}]}`, stage, planName) },
		"a closed plan":              func() { must(t, os.Chmod(write(t, "{}", stage, planName), 0)) },
		"a plan that is a directory": func() { mkdir(t, stage, planName) },
		"old of another name": func() {
			write(t, "evil", stage, oldDirName, ".git")
			write(t, "evil", stage, oldDirName, ".agency", "INTEGRATION_MARKER")
			write(t, "evil", stage, oldDirName, "out", "evil")
		},
		"old that is a link": func() { mkdir(t, stage); link(t, outside, stage, oldDirName) },
		"old that is a pipe": func() { fifo(t, stage, oldDirName) },
		"old that is a file": func() { write(t, "", stage, oldDirName) },
		"old that is closed": func() { must(t, os.Chmod(mkdir(t, stage, oldDirName), 0)) },
		"closed below":       func() { must(t, os.Chmod(mkdir(t, stage, oldDirName, "d"), 0)) },
		"read-only": func() {
			write(t, "", stage, oldDirName, "a", "b")
			must(t, os.Chmod(filepath.Join(stage, oldDirName, "a"), 0o500))
		},
		"no permissions":       func() { must(t, os.Chmod(mkdir(t, stage), 0)) },
		"no permissions above": func() { mkdir(t, stage); must(t, os.Chmod(agency, 0)) },
		"too deep":             func() { deep(t, 1000, stage, oldDirName) },
		"too deep elsewhere":   func() { deep(t, 1000, stage, newDirName) },
	} {
		forge()
		if err := Recover(t.Context(), tree, -1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.Chmod(agency, 0o755))
		if after := state(t, tree.Path); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", name, before, after)
		}
		if state(t, outside) != out {
			t.Fatalf("%s: something happened outside", name)
		}
	}
	link(t, outside, agency, "put-y")
	must(t, put(t, tree, text("x", "")))
	if state(t, outside) != out {
		t.Error("something happened outside")
	}
	must(t, os.RemoveAll(agency))
	for name, forge := range map[string]func(){
		"a pipe": func() { fifo(t, agency) }, "a file": func() { write(t, "", agency) }, "a link": func() { link(t, outside, agency) },
	} {
		forge()
		if err := Recover(t.Context(), tree, -1); err != nil {
			t.Errorf(".agency that is %s: %v", name, err)
		}
		must(t, os.Remove(agency))
	}
}

// What an agent does to its directories after a put was killed keeps nothing from being put back, or it is kept.
func TestWhatWasReplacedComesBackOrIsKept(t *testing.T) {
	t.Parallel()
	ordinary := poorly(t) || os.Geteuid() != 0
	tree, files := crowded(t)
	before := state(t, tree.Path)
	killedPut(t, tree, files, "done:before")
	d := filepath.Join(tree.Path, "d")
	must(t, os.Chmod(d, 0o555))
	must(t, Recover(t.Context(), tree, -1))
	must(t, os.Chmod(d, 0o755))
	if after := state(t, tree.Path); after != before {
		t.Errorf("with a directory that is read-only:\n%s\n%s", before, after)
	}
	if !ordinary {
		return // nothing is closed to root
	}
	killedPut(t, tree, files, "done:before")
	must(t, os.Chmod(d, 0))
	var left *IncompleteUndoError
	if err := Recover(t.Context(), tree, -1); !errors.As(err, &left) || left.Files != 3 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("with a directory that is closed: %v", err)
	}
	if err := put(t, tree, text("meanwhile", "")); err != nil {
		t.Errorf("another put: %v", err)
	}
	must(t, os.Remove(filepath.Join(tree.Path, "meanwhile")))
	must(t, os.Chmod(d, 0o755))
	must(t, Recover(t.Context(), tree, -1))
	if after := state(t, tree.Path); after != before {
		t.Errorf("as soon as it is open:\n%s\n%s", before, after)
	}
}

// As many directories as there are descriptors, and more.
func TestManyAndDeepDirectoriesDoNotExhaustDescriptors(t *testing.T) {
	t.Parallel()
	if !poorly(t) {
		return
	}
	tree, _ := newTree(t)
	var files []File
	for i := range 450 {
		write(t, "old", tree.Path, fmt.Sprintf("d%d", i), "f")
		files = append(files, text(fmt.Sprintf("d%d/f", i), "new"))
	}
	down := strings.Repeat("d/", 150)
	write(t, "old", tree.Path, down, "f")
	files = append(files, text(down+"f", "new"), text("new/"+down+"f", "new"))
	before := state(t, tree.Path)
	killedPut(t, tree, files, "done:before")
	must(t, Recover(t.Context(), tree, -1))
	if state(t, tree.Path) != before {
		t.Error("a put that was killed was not undone")
	}
	must(t, put(t, tree, files...))
	if read(t, tree.Path, "d449", "f") != "new" || read(t, tree.Path, down, "f") != "new" {
		t.Error("it was not put")
	}
	if left := entries(t, tree.Path, guard.AgencyDir); !slices.Equal(left, []string{guard.Sandbox.Name}) {
		t.Errorf("left: %q", left)
	}
}

// While a put prepares, whoever is in the tree can get at its stage.
func TestNothingThatIsThereIsWrittenToInAStage(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	before := state(t, outside)
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
	must(t, Put(t.Context(), tree, tx, []File{text("a", "1")}, nil))
	tx = &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at == "stage:before" {
			plant(newDirName + "/a")
		}
		return nil
	}}
	if err := Put(t.Context(), tree, tx, []File{text("a", "2")}, nil); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if read(t, tree.Path, "a") != "1" || state(t, outside) != before {
		t.Error("something outside was written to")
	}
}

// Who is called off does not go on to the end of a plan that somebody wrote; and one that is too long is none.
func TestAForgedPlanKeepsNobodyBusy(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	stage := filepath.Join(tree.Path, guard.AgencyDir, "put-x")
	entry := `{"path":"a/b","dev":1,"ino":2},`
	plan := `{"made":[` + strings.Repeat(entry, 20000) + `{"path":"a","dev":1,"ino":2}]}`
	write(t, plan, stage, planName)
	ctx := &endsAfter{Context: t.Context(), most: 30000} // while it is followed
	if err := Recover(ctx, tree, -1); !errors.Is(err, context.Canceled) || !exists(stage) {
		t.Error(err)
	}
	must(t, Recover(t.Context(), tree, -1))
	if exists(stage) {
		t.Error("the stage is still there")
	}
	mine := write(t, "mine", tree.Path, "mine")
	id := identityOf(t, mine)
	last := fmt.Sprintf(`{"path":"mine","dev":%d,"ino":%d,"mtime":%d}]}`, id.Device, id.Inode, id.Modified)
	write(t, `{"made":[`+strings.Repeat(" ", maxPlanBytes)+last, stage, planName)
	must(t, Recover(t.Context(), tree, -1))
	if !exists(mine) || exists(stage) {
		t.Error("a plan that nobody can have written was followed")
	}
}

// endsAfter is a context that ends when it was looked at often enough.
type endsAfter struct {
	context.Context
	most, looks int
}

func (c *endsAfter) Err() error {
	if c.looks++; c.looks > c.most {
		return context.Canceled
	}
	return c.Context.Err()
}
