package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// The main goroutine keeps the first thread, so that no test runs on it and restricts it.
func init() { runtime.LockOSThread() }

// restrictSelf restricts the thread of the test. The thread ends with the test, because it stays locked.
func restrictSelf(t *testing.T, p walls.Plan) {
	t.Helper()
	runtime.LockOSThread()
	if err := Restrict(p); err != nil {
		t.Fatal(err)
	}
}

func TestRestrictDropsAllCapabilities(t *testing.T) {
	if isParent(t) {
		runInNamespaces(t, makeFiles(t, "tree/"), walls.Plan{})
		return
	}
	_, p := applyPlan(t)
	before := threadStatus(t)
	restrictSelf(t, p)
	now, child := threadStatus(t), runProgram(t, "cat", "/proc/self/status")
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		for who, text := range map[string]string{"thread": now, "child": child} {
			if !strings.Contains(text, name+":\t0000000000000000\n") {
				t.Errorf("%s of the %s:\n%s", name, who, text)
			}
		}
	}
	if strings.Contains(before, "CapEff:\t0000000000000000\n") {
		t.Errorf("no capabilities before Restrict:\n%s", before)
	}
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(child, want) {
			t.Errorf("no %q in\n%s", want, child)
		}
	}
	if bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0); bits != 0b11101111 || err != nil {
		t.Errorf("secure bits %b, %v", bits, err)
	}
	// The other threads of this process are not restricted.
	rest := make(chan string)
	go func() {
		data, _ := os.ReadFile("/proc/self/status") // /proc/self is the first thread
		rest <- string(data)
	}()
	filters := func(status string) string { return regexp.MustCompile(`(?m)^Seccomp_filters:.*$`).FindString(status) }
	if text := <-rest; strings.Contains(text, "CapEff:\t0000000000000000\n") || filters(text) != filters(before) || filters(text) == filters(now) {
		t.Errorf("the first thread was restricted:\n%s", text)
	}
}

func threadStatus(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// runProgram runs a program from this thread and returns its output.
func runProgram(t *testing.T, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func TestRestrictBlocksPrivilegedSystemCalls(t *testing.T) {
	if isParent(t) {
		runInNamespaces(t, makeFiles(t, "tree/file=x"), walls.Plan{})
		return
	}
	dir, p := applyPlan(t)
	restrictSelf(t, p)
	file := filepath.Join(dir, "tree/file")
	for what, err := range map[string]error{
		"mount":         unix.Mount("tmpfs", dir, "tmpfs", 0, ""),
		"remount":       unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"remount /proc": unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, ""),
		"umount":        unix.Unmount("/dev", unix.MNT_DETACH),
		"chroot":        unix.Chroot("/dev"),
		"setattr":       setMountAttr(unix.AT_FDCWD, 0, 0),
		"unshare user":  unix.Unshare(unix.CLONE_NEWUSER),
		"unshare mount": unix.Unshare(unix.CLONE_NEWNS),
		"setns":         unix.Setns(0, 0),
		"hostname":      unix.Sethostname([]byte("x")),
		"settimeofday":  unix.Settimeofday(&unix.Timeval{}),
		"reboot":        unix.Reboot(0),
		"acct":          unix.Acct(""),
		"setuid file":   unix.Chmod(file, 0o4755),
		"setuid open":   closeAndErr(unix.Open("/dev/shm/x", unix.O_CREAT|unix.O_WRONLY, 0o4755)),
		"setuid mknod":  unix.Mknod("/dev/shm/x", unix.S_IFREG|0o4755, 0),
		"AF_PACKET":     closeAndErr(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)),
		"AF_VSOCK":      closeAndErr(unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)),
		"AF_ALG":        closeAndErr(unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)),
		"NETLINK_AUDIT": closeAndErr(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)),
		"read lease":    rawSyscall(unix.SYS_FCNTL, 0, unix.F_SETLEASE, unix.F_RDLCK),
		"delegation":    rawSyscall(unix.SYS_FCNTL, 0, 1040, 0),
		"dnotify":       rawSyscall(unix.SYS_FCNTL, 0, unix.F_NOTIFY, 0),
		"bpf":           rawSyscall(unix.SYS_BPF, 0, 0, 0),
		"io_uring":      rawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0),
		"keyctl":        rawSyscall(unix.SYS_KEYCTL, 0, 0, 0),
		"userfaultfd":   rawSyscall(unix.SYS_USERFAULTFD, 0, 0, 0),
		"perf":          rawSyscall(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0),
		"open_tree":     rawSyscall(unix.SYS_OPEN_TREE, 0, 0, 0),
		"clone user":    rawSyscall(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0),
		"init_module":   rawSyscall(unix.SYS_INIT_MODULE, 0, 0, 0),
	} {
		requireErrno(t, what, err, unix.EPERM)
	}
	requireErrno(t, "clone3", rawSyscall(unix.SYS_CLONE3, 0, 0, 0), unix.ENOSYS)
	if runtime.GOARCH == "amd64" {
		requireErrno(t, "x32", rawSyscall(1<<30|unix.SYS_GETPID, 0, 0, 0), unix.EPERM)
		requireErrno(t, "x32 lease", rawSyscall(1<<30|unix.SYS_FCNTL, 0, unix.F_SETLEASE, unix.F_RDLCK), unix.EPERM)
	}
	requireErrno(t, "openat2", closeAndErr(openNoSymlinks(unix.AT_FDCWD, "/")), unix.ENOSYS)
	for _, kind := range [][3]int{{unix.AF_UNIX, unix.SOCK_STREAM, 0}, {unix.AF_INET, unix.SOCK_STREAM, 0}, {unix.AF_INET6, unix.SOCK_DGRAM, 0}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}} {
		fd, err := unix.Socket(kind[0], kind[1]|unix.SOCK_CLOEXEC, kind[2])
		if err != nil {
			t.Errorf("socket%v: %v", kind, err)
			continue
		}
		unix.Close(fd)
	}
	// Process 1 has capabilities and descriptors of files outside: it can be neither signalled, inspected nor traced.
	for _, reach := range []string{"kill -0 1", "ls -L /proc/1/root/", "readlink /proc/1/fd/0", "cat </proc/1/fd/0", "readlink /proc/1/exe", "cat /proc/1/environ", "echo x >/proc/1/comm", "strace -p 1 -o /dev/null"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", reach).CombinedOutput(); err == nil {
			t.Errorf("%s: %s", reach, out)
		}
	}
}

// closeAndErr closes fd if err is nil, and returns err.
func closeAndErr(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func rawSyscall(call, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(call, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// TestLandlockAllowsOnlyPlannedWrites writes where the mounts allow it and Landlock does not: each wall must hold
// without the others.
func TestLandlockAllowsOnlyPlannedWrites(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tree/a/file=x", "tree/b/", "more/", "single=x", "socket/")
		runInNamespaces(t, dir, walls.Plan{Writable: joinAll(dir, "tree", "more", "single", "socket")})
		if got := readFiles(t, dir, "single", "tree/b/file"); got != "new x" {
			t.Errorf("got %s", got)
		}
		return
	}
	dir, p := applyPlan(t)
	p.Writable = withoutPath(p.Writable, filepath.Join(dir, "more"))
	restrictSelf(t, p)
	requireErrno(t, "write outside the plan", os.WriteFile(filepath.Join(dir, "more/file"), nil, 0o600), unix.EACCES)
	name := func(n string) string { return filepath.Join(dir, n) }
	if err := errors.Join(
		os.Rename(name("tree/a/file"), name("tree/b/file")), // between directories
		os.Truncate(name("tree/b/file"), 1),
		os.Symlink("x", name("tree/link")),
		unix.Mkfifo(name("tree/fifo"), 0o600),
		os.WriteFile(name("tree/b/program"), []byte("#!/bin/sh\necho hello\n"), 0o755),
		os.WriteFile(name("single"), []byte("new"), 0o600),
		os.MkdirAll(name("tree/c/d"), 0o700),
		os.RemoveAll(name("tree/c")),
	); err != nil {
		t.Error(err)
	}
	if out := runProgram(t, name("tree/b/program")); out != "hello\n" {
		t.Errorf("got %q", out)
	}
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		for _, device := range []uint64{0, unix.Mkdev(1, 3)} { // device 0:0 is a whiteout in an overlay
			if err := unix.Mknod(name("tree/device"), kind|0o600, int(device)); err == nil {
				t.Errorf("mknod made device %o %d", kind, device)
			}
		}
	}
	requireErrno(t, "whiteout", unix.Renameat2(unix.AT_FDCWD, name("tree/b/file"), unix.AT_FDCWD, name("tree/b/gone"), unix.RENAME_WHITEOUT), unix.EPERM)

	// A socket in the sandbox accepts connections from the sandbox.
	server, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	path := &unix.SockaddrUnix{Name: name("socket/s")}
	client, err2 := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err := errors.Join(err, err2, unix.Bind(server, path), unix.Listen(server, 1), unix.Connect(client, path)); err != nil && len(path.Name) < 108 {
		t.Error(err)
	}
}

func withoutPath(all []string, one string) (rest []string) {
	for _, s := range all {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}

func TestRestrictedProgramsStillWork(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tree/", "tmp/")
		runInNamespaces(t, dir, walls.Plan{Writable: joinAll(dir, "tree", "tmp"), Network: walls.NoNetwork})
		return
	}
	dir, p := applyPlan(t)
	restrictSelf(t, p)
	tree, tmp := filepath.Join(dir, "tree"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.Setenv("HOME", tmp), os.Setenv("TMPDIR", tmp), os.Chdir(tree)); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"sh", "-c", "echo $(echo a | cat) | grep a && mkdir -p x/y && mv x/y z && ls >/dev/null 2>&1"},
		{"git", "init", "-q", "repo"},
		{"git", "-C", "repo", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "--allow-empty", "-m", "x"},
		{"git", "clone", "-q", "repo", "copy"},
		{"python3", "-c", "import os,subprocess,threading,multiprocessing as m; os.openpty(); subprocess.run(['true'],check=True); t=threading.Thread(target=print); t.start(); t.join(); m.Lock()"},
		{"node", "-e", "require('child_process').execSync('true'); new (require('worker_threads').Worker)('process.exit(0)',{eval:true}); require('fs').writeFileSync('n','x'); setTimeout(()=>{},20)"},
		{"go", "version"},
		{"strace", "-f", "-o", "trace", "sh", "-c", "true; true"},
		{"gdb", "-q", "-batch", "-ex", "run", "--args", "true"},
		{"script", "-qec", "tty && stty -a", "/dev/null"},
	} {
		path, err := exec.LookPath(argv[0])
		if err != nil || strings.Contains(path, ".pyenv") && os.Getuid() != 0 {
			t.Logf("%s is not installed", argv[0])
			continue
		}
		runProgram(t, argv...)
	}
}

func TestRestrictRequiresLandlock(t *testing.T) {
	t.Parallel()
	for _, abi := range []int{-1, 0, 1} {
		if err := Restrict(walls.Plan{LandlockABI: abi}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("landlock ABI %d", abi)) {
			t.Error(err)
		}
	}
	known, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newRuleset(walls.Plan{LandlockABI: known}); err != nil {
		t.Error(err)
	}
	if known < 9 {
		if err := Restrict(walls.Plan{LandlockABI: 9}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("an ABI newer than the kernel's: %v", err)
		}
	}
}
