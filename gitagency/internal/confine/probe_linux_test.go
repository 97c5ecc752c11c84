package confine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"golang.org/x/sys/unix"
)

// TestProbeAgreesWithUnshare compares Probe with unshare(1), which makes the same namespaces and mounts on its own.
func TestProbeAgreesWithUnshare(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skipf("skipped: no unshare: %v", err)
	}
	dir := t.TempDir()
	const overlay = `cd "$1" && mkdir l u w m && echo below >l/file &&
mount -t overlay -o userxattr,lowerdir=l,upperdir=u,workdir=w none m &&
test "$(cat m/file)" = below && echo above >m/file && test "$(cat l/file u/file)" = "below
above"`
	for name, argv := range map[string][]string{
		UserNamespaces: {"-Urm", "true"},
		PIDNamespaces:  {"-Urpf", "--mount-proc", "sh", "-c", `test -d /proc/1 && test "$(readlink /proc/self)" -lt 9`},
		Overlay:        {"-Urm", "sh", "-c", overlay, "sh", dir},
	} {
		out, err := exec.CommandContext(t.Context(), unshare, argv...).CombinedOutput()
		if got := probeFeatures(t, probeEnv(t))[name]; (got.State == OK) != (err == nil) {
			t.Errorf("%+v, but unshare: %v %s", got, err, out)
		}
	}
	removeEmptyWorkDir(t, filepath.Join(dir, "w"))
}

// removeEmptyWorkDir removes the overlay's work/work, which has no permissions and stops os.RemoveAll.
func removeEmptyWorkDir(t *testing.T, work string) {
	t.Helper()
	if err := os.Remove(filepath.Join(work, "work")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestLandlockAcceptsRightsOfItsABI creates rulesets: the kernel accepts the rights of its ABI and refuses others.
func TestLandlockAcceptsRightsOfItsABI(t *testing.T) {
	t.Parallel()
	got := probeFeatures(t, probeEnv(t))[Landlock]
	if got.State != OK {
		t.Skipf("skipped: %s", got.Detail)
	}
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.Detail, "ABI "+strconv.Itoa(abi)) {
		t.Errorf("ABI %d, but %q", abi, got.Detail)
	}
	for _, c := range []struct {
		since int
		right uint64
	}{
		{1, unix.LANDLOCK_ACCESS_FS_EXECUTE},
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{1 << 30, 1 << 60},
	} {
		fd, err := createRuleset(c.right)
		if err == nil {
			unix.Close(fd)
		}
		if (err == nil) != (abi >= c.since) {
			t.Errorf("right %#x of ABI %d with ABI %d: %v", c.right, c.since, abi, err)
		}
	}
}

func TestProbeSeccompMatchesKernelActions(t *testing.T) {
	t.Parallel()
	actions, _ := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	listed := strings.Contains(string(actions), "errno")
	if got := probeFeatures(t, probeEnv(t))[Seccomp]; (got.State == OK) != listed {
		t.Errorf("%+v, but the kernel lists %q", got, actions)
	}
}

func TestProbeLeavesNoFilesOrMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	probeFeatures(t, probeEnv(t, "TMPDIR="+dir))
	requireEmpty(t, dir)
}

func TestCancelledProbeReturnsCauseAndCleansUp(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	pidFile := filepath.Join(bin, "pid")
	// Only the overlay mount runs in the host's pid namespace, so only its pid is written.
	writeScript(t, bin, "mount", `case "$*" in *overlay*) echo $$ >'`+pidFile+`.new'; mv '`+pidFile+`.new' '`+pidFile+`';; esac; sleep 600`)
	cause := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(pidFile); err == nil {
				cancel(cause)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	env := probeEnv(t, "TMPDIR="+dir, "PATH="+bin+":"+os.Getenv("PATH"))
	if probeFeatures(t, probeEnv(t))[UserNamespaces].State != OK {
		t.Skip("skipped: without user namespaces nothing is started that could be cancelled")
	}
	features, err := prober{env: env, timeout: time.Minute}.probe(ctx)
	if !errors.Is(err, cause) || features != nil {
		t.Errorf("got %v, %v", features, err)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/status"); err == nil && !strings.Contains(string(status), "\nState:\tZ") {
		t.Errorf("mount is still running: %s", status)
	}
	requireEmpty(t, dir)
}

func TestProbeTimeoutIsUnknown(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	writeScript(t, bin, "mount", "sleep 600")
	if probeFeatures(t, probeEnv(t))[UserNamespaces].State != OK {
		t.Skip("skipped: without user namespaces nothing is started that could hang")
	}
	env := probeEnv(t, "TMPDIR="+dir, "PATH="+bin+":"+os.Getenv("PATH"))
	features, err := prober{env: env, timeout: 100 * time.Millisecond}.probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range features {
		if (f.Name == PIDNamespaces || f.Name == Overlay) && (f.State != Unknown || !strings.Contains(f.Detail, "did not end within 100ms")) {
			t.Errorf("got %+v", f)
		}
	}
	requireEmpty(t, dir)
}

func TestProbeWithoutProgramsIsUnknown(t *testing.T) {
	t.Parallel()
	features := probeFeatures(t, []string{"PATH=" + t.TempDir(), "TMPDIR=" + t.TempDir()})
	for name, program := range map[string]string{UserNamespaces: "true", PIDNamespaces: "mount", Overlay: "mount"} {
		if f := features[name]; f.State != Unknown || f.Detail != `not tested: no program "`+program+`" on PATH` {
			t.Errorf("got %+v", f)
		}
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if f := probeFeatures(t, probeEnv(t, "TMPDIR="+gone))[Overlay]; f.State != Unknown || !strings.Contains(f.Detail, gone) {
		t.Errorf("got %+v", f)
	}
}

func TestProbeVerifiesOverlayMount(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	writeScript(t, bin, "mount", "exit 0")
	env := probeEnv(t, "PATH="+bin+":"+os.Getenv("PATH"))
	if probeFeatures(t, probeEnv(t))[UserNamespaces].State != OK {
		t.Skip("skipped: without user namespaces nothing is mounted")
	}
	if f := probeFeatures(t, env)[Overlay]; f.State != Unknown || !strings.Contains(f.Detail, "nothing was mounted") {
		t.Errorf("got %+v", f)
	}
}

func TestProbeQuotesMountError(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	writeScript(t, bin, "mount", `echo "mount: no, and you know why." >&2; echo "dmesg may know more" >&2; exit 32`)
	env := probeEnv(t, "PATH="+bin+":"+os.Getenv("PATH"))
	if probeFeatures(t, probeEnv(t))[UserNamespaces].State != OK {
		t.Skip("skipped: without user namespaces nothing is mounted")
	}
	if f := probeFeatures(t, env)[PIDNamespaces]; f.State != Missing || !strings.HasSuffix(f.Detail, "mount: no, and you know why") {
		t.Errorf("got %+v", f)
	}
}

// TestProbeNamesSettingThatForbidsUserNamespaces sets user.max_user_namespaces to 0 in a user namespace, where
// its root may do so without affecting the host.
func TestProbeNamesSettingThatForbidsUserNamespaces(t *testing.T) {
	if os.Getenv(reexecVariable) == "" {
		t.Parallel()
		rerunTest(t, t.Name(), func(cmd *exec.Cmd) error {
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			}
			return nil
		})
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	features := probeFeatures(t, probeEnv(t, "TMPDIR="+dir))
	if f := features[UserNamespaces]; f.State != Missing || f.Detail != "no space left on device: user.max_user_namespaces is 0; to allow it: sudo sysctl user.max_user_namespaces=10000" {
		t.Errorf("got %+v", f)
	}
	for _, name := range []string{PIDNamespaces, NetworkNamespaces, MountAPI, Overlay, JoiningNamespaces, AllWalls} {
		if f := features[name]; f.State != Missing || f.Detail != "needs user namespaces" {
			t.Errorf("got %+v", f)
		}
	}
	requireEmpty(t, dir)
}

// TestProbeReportsPowerlessUserNamespacesMissing runs under Landlock, which allows user namespaces but no mounts, as
// AppArmor does on some systems.
func TestProbeReportsPowerlessUserNamespacesMissing(t *testing.T) {
	if os.Getenv(reexecVariable) == "" {
		t.Parallel()
		if _, err := landlock.ABI(); err != nil {
			t.Skipf("skipped: no Landlock: %v", err)
		}
		if probeFeatures(t, probeEnv(t))[UserNamespaces].State != OK {
			t.Skip("skipped: no user namespaces")
		}
		rerunTest(t, t.Name(), func(*exec.Cmd) error { return denyMounts() })
		return
	}
	dir := t.TempDir()
	features := probeFeatures(t, probeEnv(t, "TMPDIR="+dir))
	if f := features[UserNamespaces]; f.State != Missing || !strings.HasPrefix(f.Detail, "one can be created, but without capabilities: operation not permitted") {
		t.Errorf("got %+v", f)
	}
	if f := features[Overlay]; f.State != Missing || f.Detail != "needs user namespaces" {
		t.Errorf("got %+v", f)
	}
	if f := features[Landlock]; f.State != OK { // rulesets can be nested
		t.Errorf("got %+v", f)
	}
	requireEmpty(t, dir)
}

// TestUnprivilegedUser runs the other tests as an unprivileged user, because root is refused less and can remove
// more.
func TestUnprivilegedUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: the other tests run as an ordinary user already")
	}
	// Directories that an unprivileged user can reach.
	house := t.TempDir()
	tmp, exe := filepath.Join(house, "tmp"), filepath.Join(house, "test")
	if out, err := exec.CommandContext(t.Context(), "cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", exe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const nobody = 65534
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chown(tmp, nobody, nobody), os.Chmod(exe, 0o755), os.Chmod(house, 0o755), os.Chmod(filepath.Dir(house), 0o755)); err != nil {
		t.Fatal(err)
	}
	// The manual is in the source tree, which that user may not be able to read.
	cmd := exec.CommandContext(t.Context(), exe, "-test.v", "-test.skip=^("+t.Name()+"|TestManualListsBlockedCalls)$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: TestProbeLeavesNoFilesOrMounts"):
		t.Errorf("the tests did not run:\n%s", out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("skipped: some of it as an ordinary user:\n%s", out)
	}
}

func BenchmarkProbe(b *testing.B) {
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + b.TempDir()}
	for b.Loop() {
		if _, err := Probe(b.Context(), env); err != nil {
			b.Fatal(err)
		}
	}
}

// probeFeatures calls Probe and returns the features by name.
func probeFeatures(t *testing.T, env []string) map[string]Feature {
	t.Helper()
	features, err := Probe(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Feature{}
	order := FeatureNames()
	for i, f := range features {
		if i >= len(order) || f.Name != order[i] || f.Detail == "" {
			t.Errorf("%d: %+v", i, f)
		}
		byName[f.Name] = f
	}
	if len(byName) != len(order) {
		t.Fatalf("got %+v", features)
	}
	return byName
}

// probeEnv returns the PATH of this process, a temporary TMPDIR and the given variables.
func probeEnv(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}, more...)
}

// writeScript makes an executable shell script.
func writeScript(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// requireEmpty checks that dir is empty and that nothing is mounted in it.
func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("something is mounted in %s, %v:\n%s", dir, err, mounts)
	}
}

// reexecVariable is set in the process in which rerunTest runs a test again.
const reexecVariable = "CONFINE_TEST_INSIDE"

// rerunTest runs a test of this binary in another process and fails if it fails there. prepare may set attributes
// of the command and restrict the thread that starts it.
func rerunTest(t *testing.T, test string, prepare func(*exec.Cmd) error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), reexecVariable+"="+test, "TMPDIR="+t.TempDir())
	var out []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime must not reuse a restricted thread
		if err = prepare(cmd); err == nil {
			out, err = cmd.CombinedOutput()
		}
	}()
	<-done
	switch {
	case err != nil && cmd.ProcessState == nil:
		t.Skipf("skipped: the process cannot be started like this: %v", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+test):
		t.Errorf("the test did not run:\n%s", out)
	}
}

// denyMounts puts this thread and its children under a Landlock ruleset that forbids little besides mounting.
func denyMounts() error {
	fd, err := createRuleset(unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// createRuleset creates a Landlock ruleset that handles one access right.
func createRuleset(right uint64) (int, error) {
	attr := struct{ fs uint64 }{right}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}
