package confine

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// fakeCgroups imitates a cgroup2 file system with ordinary directories: creating a cgroup creates its files,
// removing it removes them, and a child gets the controllers in its parent's cgroup.subtree_control.
type fakeCgroups struct {
	t    *testing.T
	root string
	cgroupFS
}

func newFakeCgroups(t *testing.T, own string) *fakeCgroups {
	t.Helper()
	dir := t.TempDir()
	tree := &fakeCgroups{t: t, root: filepath.Join(dir, "cgroup")}
	tree.cgroupFS = cgroupFS{
		cgroupFile: filepath.Join(dir, "self"), mountinfoFile: filepath.Join(dir, "mountinfo"),
		mkdir: tree.makeDir, writeFile: tree.setFile, rmdir: tree.removeDir,
	}
	tree.write(tree.cgroupFile, "4:memory:/elsewhere\n0::"+own+"\n")
	tree.write(tree.mountinfoFile, "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"+
		"41 31 0:38 / "+tree.root+" rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
	return tree
}

func (c *fakeCgroups) write(path, text string) {
	c.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		c.t.Fatal(err)
	}
}

// addCgroup makes a cgroup with the given controllers, of which it delegates those in handsOn.
func (c *fakeCgroups) addCgroup(path, controllers, handsOn string) {
	c.t.Helper()
	for file, text := range map[string]string{"cgroup.procs": "", "cgroup.controllers": controllers, "cgroup.subtree_control": handsOn} {
		c.write(filepath.Join(c.root, path, file), text)
	}
}

func (c *fakeCgroups) read(path string) string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.root, path))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// makeDir is cgroupFS.mkdir.
func (c *fakeCgroups) makeDir(path string) error {
	handsOn, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	files := map[string]string{"cgroup.procs": "", "cgroup.kill": "", "cgroup.subtree_control": "", "cgroup.controllers": string(handsOn)}
	for _, controller := range strings.Fields(files["cgroup.controllers"]) {
		files[controller+".max"] = "max"
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(path, name), []byte(text), 0o644))
	}
	return err
}

// setFile is cgroupFS.writeFile. As in the kernel, a cgroup that holds processes enables no controller.
func (c *fakeCgroups) setFile(dir, file, value string) error {
	path := filepath.Join(dir, file)
	was, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if controller, ok := strings.CutPrefix(value, "+"); ok {
		if procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(procs) > 0 {
			return errors.Join(err, unix.EBUSY)
		}
		value = string(was) + " " + controller
	}
	if controller, ok := strings.CutPrefix(value, "-"); ok {
		value = strings.Join(slices.DeleteFunc(strings.Fields(string(was)), func(c string) bool { return c == controller }), " ")
	}
	return os.WriteFile(path, []byte(value), 0o644)
}

// removeDir is cgroupFS.rmdir. It fails with EBUSY while the cgroup has children or processes.
func (c *fakeCgroups) removeDir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			return unix.EBUSY
		}
	}
	if data, err := os.ReadFile(filepath.Join(path, "cgroup.procs")); err != nil || len(data) > 0 {
		return errors.Join(err, unix.EBUSY)
	}
	return os.RemoveAll(path)
}

func TestFindDelegatedCgroupPicksNearestUsable(t *testing.T) {
	t.Parallel()
	const app = "/user.slice/user@1000.service/app.slice"
	for name, c := range map[string]struct {
		own     string
		prepare func(*fakeCgroups)
		parent  string // cgroup below which commands get theirs; empty: none is found
		offers  string // controllers of parent
		why     string // part of the error, if parent is empty
	}{
		"desktop session": {
			app + "/terminal.scope", func(c *fakeCgroups) {
				c.addCgroup("", "cpu memory pids", "cpu memory pids")
				c.addCgroup(app, "cpu memory pids", "memory pids")
				c.addCgroup(app+"/terminal.scope", "memory pids", "")
				c.addProcesses(app + "/terminal.scope")
			}, app, "memory pids", "",
		},
		"controller not yet enabled": {
			app, func(c *fakeCgroups) { c.addCgroup(app, "memory", "") }, app, "memory", "",
		},
		"more controllers in an ancestor": {
			app + "/terminal.scope", func(c *fakeCgroups) {
				c.addCgroup(app, "memory pids", "memory pids")
				c.addCgroup(app+"/terminal.scope", "memory", "memory")
			}, app, "memory pids", "",
		},
		"without controllers": {
			"/", func(c *fakeCgroups) { c.addCgroup("", "hugetlb", "") }, "", "", "has no memory controller",
		},
		"processes in the cgroup": {
			"/", func(c *fakeCgroups) { c.addCgroup("", "memory pids", ""); c.addProcesses("") }, "", "", "contains processes",
		},
		"outside the cgroup namespace": {
			"/../other", func(c *fakeCgroups) { c.addCgroup("", "memory pids", "memory pids") }, "", "", "no cgroup v2 of its cgroup namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := newFakeCgroups(t, c.own)
			c.prepare(tree)
			found, err := findDelegatedCgroup(tree.cgroupFS, memoryController, pidsController)
			if c.parent == "" {
				if err == nil || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %+v, %v", found, err)
				}
				return
			}
			if err != nil || found.dir != filepath.Join(tree.root, c.parent) || strings.Join(found.controllers, " ") != c.offers {
				t.Errorf("got %+v, %v", found, err)
			}
			if left, _ := filepath.Glob(filepath.Join(found.dir, cgroupPrefix+"*")); len(left) > 0 {
				t.Errorf("findDelegatedCgroup left %q", left)
			}
		})
	}
}

// addProcesses writes two process ids into a cgroup.
func (c *fakeCgroups) addProcesses(path string) {
	c.t.Helper()
	c.write(filepath.Join(c.root, path, "cgroup.procs"), "1\n2\n")
}

func TestCommandCgroupsLimitCommandAndSandbox(t *testing.T) {
	t.Parallel()
	tree := newFakeCgroups(t, "/")
	tree.addCgroup("", "memory pids", "memory pids")
	found, err := findDelegatedCgroup(tree.cgroupFS, memoryController, pidsController)
	if err != nil {
		t.Fatal(err)
	}
	whole := CgroupLimits{Memory: 1000, Processes: 50}
	first, err := found.NewCommandCgroup("x", whole, CgroupLimits{Memory: 10, Processes: 5})
	if err != nil {
		t.Fatal(err)
	}
	second, err := found.NewCommandCgroup("x", whole, whole)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"git-agency-x/memory.max": "1000", "git-agency-x/pids.max": "50", "git-agency-x/1/memory.max": "10", "git-agency-x/1/pids.max": "5",
		"git-agency-x/2/memory.max": "1000",
	} {
		if got := tree.read(file); got != want {
			t.Errorf("%s: %q", file, got)
		}
	}
	if _, err := second.Procs.WriteString("17"); err != nil {
		t.Fatal(err)
	}
	if got := tree.read("git-agency-x/2/cgroup.procs"); got != "17" {
		t.Errorf("cgroup.procs is %q", got)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(tree.root, "git-agency-x/2")); err != nil {
		t.Errorf("closing the first cgroup removed the second: %v", err)
	}
	tree.write(filepath.Join(tree.root, "git-agency-x/2/cgroup.procs"), "") // the process has ended
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(tree.root, "git-agency-x")); !os.IsNotExist(err) {
		t.Errorf("closing the last cgroup left the sandbox's: %v", err)
	}
}

func TestRemoveCgroupsSparesCgroupsInUse(t *testing.T) {
	t.Parallel()
	tree := newFakeCgroups(t, "/a/b")
	tree.addCgroup("", "pids", "pids")
	tree.addCgroup("a", "pids", "pids")
	tree.addCgroup("a/b", "", "")
	found, err := findDelegatedCgroup(tree.cgroupFS, pidsController)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := found.NewCommandCgroup("x", CgroupLimits{}, CgroupLimits{Processes: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(killed.Hold.Close(), killed.Procs.Close()); err != nil { // as when git-agency is killed
		t.Fatal(err)
	}
	inUse, err := found.NewCommandCgroup("x", CgroupLimits{}, CgroupLimits{Processes: 3})
	if err != nil {
		t.Fatal(err)
	}
	if inUse.dir != killed.dir {
		t.Errorf("%s was not removed", killed.dir)
	}
	removeCgroups(tree.cgroupFS, "x")
	if _, err := os.Stat(inUse.dir); err != nil {
		t.Errorf("a cgroup in use was removed: %v", err)
	}
	if err := errors.Join(inUse.Hold.Close(), inUse.Procs.Close()); err != nil {
		t.Fatal(err)
	}
	removeCgroups(tree.cgroupFS, "x")
	if _, err := os.Stat(filepath.Dir(inUse.dir)); !os.IsNotExist(err) {
		t.Errorf("the sandbox's cgroup is still there: %v", err)
	}
}

// TestKernelCgroupsHoldCommand uses the kernel's cgroups, if the machine has any: a command enters its cgroup from
// inside its namespaces, Close removes the cgroup, and concurrent creations and removals do not interfere.
// The test works with any controller.
func TestKernelCgroupsHoldCommand(t *testing.T) {
	t.Parallel()
	controller, handedOver := os.LookupEnv("TEST_CGROUP_CONTROLLER")
	if os.Geteuid() != 0 && !handedOver {
		return // root delegates a cgroup and runs this test in it
	}
	if !handedOver {
		controller = findController(t)
		rerunDelegated(t, controller)
	}
	kernel := hostCgroupFS()
	found, err := findDelegatedCgroup(kernel, controller)
	if err != nil {
		t.Fatal(err)
	}
	sandbox := "test-" + strconv.Itoa(os.Getpid())
	g, err := found.NewCommandCgroup(sandbox, CgroupLimits{}, CgroupLimits{})
	if err != nil {
		t.Fatal(err)
	}
	sleep := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Procs.WriteString(strconv.Itoa(sleep.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var out bytes.Buffer
	task := proc.Task{
		Argv: []string{"sh", "-c", "cat /proc/self/cgroup; grep ^0:: /proc/1/cgroup; (sleep 1000 &)"}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Stdout: &out, Label: "test", Limits: proc.Limits{Cgroup: g.Procs}, HoldOpen: []*os.File{g.Hold},
	}
	if ending, err := task.Run(t.Context()); err != nil || ending.ExitCode != 0 {
		t.Fatalf("got %+v, %v", ending, err)
	}
	if in := cgroupPrefix + sandbox + "/1\n"; strings.Count(out.String(), in) != 1 || strings.HasSuffix(out.String(), in) {
		t.Errorf("cgroups of the command and of its supervisor:\n%s", &out)
	}

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				other, err := found.NewCommandCgroup(sandbox+"-b", CgroupLimits{}, CgroupLimits{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()

	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := sleep.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process left in the cgroup was not killed: %v", err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; { // killed processes leave the cgroup a moment later
		removeCgroups(kernel, sandbox)
		left, _ := filepath.Glob(filepath.Join(found.dir, cgroupPrefix+sandbox+"*"))
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", left)
		}
	}
}

// findController returns a controller that child cgroups can use on this machine, or skips the test.
func findController(t *testing.T) string {
	t.Helper()
	kernel := hostCgroupFS()
	top, own, err := kernel.locateOwn()
	if err != nil {
		t.Skipf("skipped: no cgroups: %v", err)
	}
	has, err := readFields(own, "cgroup.controllers")
	if err != nil || len(has) == 0 {
		t.Skipf("skipped: no controllers in %s: %v", own, err)
	}
	before, _ := readFields(top, "cgroup.subtree_control")
	if _, err := findDelegatedCgroup(kernel, has[0]); err != nil {
		t.Skipf("skipped: no delegated cgroup: %v", err)
	}
	if after, _ := readFields(top, "cgroup.subtree_control"); !slices.Equal(before, after) {
		t.Errorf("findDelegatedCgroup changed cgroup.subtree_control from %q to %q", before, after)
	}
	if len(before) == 0 {
		t.Cleanup(func() { _ = kernel.writeFile(top, "cgroup.subtree_control", "-"+has[0]) })
	}
	return has[0]
}

// rerunDelegated delegates a cgroup to an unprivileged user, as systemd does, and runs the test again as that
// user in that cgroup.
func rerunDelegated(t *testing.T, controller string) {
	t.Helper()
	const nobody = 65534
	kernel := hostCgroupFS()
	found, err := findDelegatedCgroup(kernel, controller)
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.enableController(found.dir, controller); err != nil {
		t.Fatal(err)
	}
	slice := filepath.Join(found.dir, cgroupPrefix+"handed-over-"+strconv.Itoa(os.Getpid()))
	scope := filepath.Join(slice, "scope")
	for _, dir := range []string{slice, scope} {
		if err := kernel.mkdir(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := kernel.rmdir(dir); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		})
		for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(dir, file), nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	inside, err := os.Open(scope)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()

	house := t.TempDir()
	tmp, exe := filepath.Join(house, "tmp"), filepath.Join(house, "test")
	if out, err := exec.CommandContext(t.Context(), "cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", exe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chown(tmp, nobody, nobody), os.Chmod(house, 0o755), os.Chmod(filepath.Dir(house), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR="+tmp, "TEST_CGROUP_CONTROLLER="+controller)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		UseCgroupFD: true, CgroupFD: int(inside.Fd()),
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

func TestCheckPtraceScopeAndKernelVersion(t *testing.T) {
	t.Parallel()
	if err := checkPtraceScope([]byte("3\n"), nil); err == nil || !strings.Contains(err.Error(), "ptrace_scope") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(checkPtraceScope([]byte("1\n"), nil), checkPtraceScope(nil, os.ErrNotExist)); err != nil {
		t.Errorf("got %v", err)
	}
	for release, want := range map[string][2]int{"6.18.44-fc": {6, 18}, "5.14": {5, 14}, "": {}} {
		if major, minor := kernelVersion(release); [2]int{major, minor} != want {
			t.Errorf("%q is %d.%d", release, major, minor)
		}
	}
}

func TestCgroupFeatureGivesReason(t *testing.T) {
	t.Parallel()
	for want, got := range map[Feature]Feature{
		{CgroupDelegation, OK, "memory and pids can be limited in /c"}:              cgroupFeature(&DelegatedCgroup{dir: "/c", controllers: []string{"memory", "pids"}}, nil),
		{CgroupDelegation, OK, "memory can be limited in /c"}:                       cgroupFeature(&DelegatedCgroup{dir: "/c", controllers: []string{"memory"}}, nil),
		{CgroupDelegation, Missing, "/c has no memory controller for its children"}: cgroupFeature(&DelegatedCgroup{dir: "/c", controllers: []string{"pids"}}, nil),
		{CgroupDelegation, Missing, "cgroup v2 is not mounted"}:                     cgroupFeature(nil, errors.New("cgroup v2 is not mounted")),
	} {
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
