package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// namespaceTrial is the result of a namespace with its own network.
type namespaceTrial struct {
	startErr    error // why it could not be started
	listenErr   error // why nothing could listen in it
	labelDirErr error // no directory could be created for its label
	joinErr     error // why no descriptor could be taken from its init process
	cleanupErr  error // the directory or the namespace could not be removed
}

// tryNamespace starts a namespace with its own network and nothing else, listens there, and takes a descriptor from its
// init process, as a joining client does.
func (l prober) tryNamespace(ctx context.Context) (t namespaceTrial) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("the namespace was not ready within %s", l.timeout))
	defer cancel()
	dir, err := os.MkdirTemp(l.tempDir(), "git-agency-probe-")
	if err == nil {
		defer func() { t.cleanupErr = errors.Join(t.cleanupErr, os.Remove(dir)) }()
	}
	label, hold := os.DevNull, []*os.File{}
	if f, openErr := os.Open(dir); err == nil && openErr == nil {
		defer f.Close()
		label, hold = dir, append(hold, f)
	} else {
		t.labelDirErr = errors.Join(err, openErr)
	}
	ns, err := startNamespace(ctx, walls.Plan{Network: walls.NoNetwork, NetworkOnly: true}, label, hold...)
	if err != nil {
		t.startErr = err
		return t
	}
	defer func() { t.cleanupErr = errors.Join(t.cleanupErr, ns.Close()) }()
	listener, err := ns.Listen(ctx, "127.0.0.1:0")
	if err == nil {
		err = listener.Close()
	}
	t.listenErr = err
	if t.labelDirErr == nil {
		t.joinErr = tryPidfdGetfd(proc.FindSupervisors(label))
	}
	return t
}

// tryPidfdGetfd takes a descriptor from an init process, and closes it.
func tryPidfdGetfd(pids []int) error {
	if len(pids) != 1 {
		return fmt.Errorf("%d init processes of the namespace were found in /proc, want 1", len(pids))
	}
	pidfd, err := unix.PidfdOpen(pids[0], 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_getfd", err)
	}
	return unix.Close(fd)
}

// tryWalls builds all walls around nothing, and runs true(1) behind them if it exists.
func (l prober) tryWalls(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("the walls were not ready within %s", l.timeout))
	defer cancel()
	plan, err := walls.MakeTrialPlan(walls.NoNetwork, InspectMachine())
	if err != nil {
		return err
	}
	ns, err := startNamespace(ctx, plan, os.DevNull)
	if err != nil {
		return err
	}
	return errors.Join(l.runTrue(ctx, ns), ns.Close())
}

func (l prober) runTrue(ctx context.Context, ns *proc.Namespace) error {
	path, err := proc.LookPath(l.env, "true")
	if err != nil {
		return nil // without a program, building the walls is the trial
	}
	dir, err := os.Open("/")
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = ns.Run(ctx, proc.Task{Argv: []string{path}, Dir: dir, Timeout: l.timeout}) // any exit status will do
	return err
}

// checkMountAPI asks whether the kernel has the system calls of the mount API, with arguments for which they do nothing.
func checkMountAPI() error {
	nowhere := ^uintptr(0)
	for _, c := range []struct {
		name   string
		number uintptr
	}{
		{"open_tree", unix.SYS_OPEN_TREE},
		{"fsopen", unix.SYS_FSOPEN},
		{"move_mount", unix.SYS_MOVE_MOUNT},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR},
	} {
		if _, _, errno := unix.Syscall6(c.number, nowhere, 0, nowhere, 0, 0, 0); errno == unix.ENOSYS {
			return os.NewSyscallError(c.name, errno)
		}
	}
	return nil
}

// onDisposableThread runs do on a thread that ends afterwards, because its restrictions cannot be undone. It is never
// the main thread, which represents this process in /proc.
func onDisposableThread(do func() error) error {
	runtime.LockOSThread() // if this is the main thread, no other goroutine gets it meanwhile
	defer runtime.UnlockOSThread()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			runtime.UnlockOSThread()
			done <- onDisposableThread(do) // this call locks the main thread, so the next goroutine gets another one
			return
		}
		done <- do()
	}()
	return <-done
}

// tryLandlock makes Landlock forbid this thread to write, and tries to write.
func tryLandlock() error {
	attr := struct{ files uint64 }{unix.LANDLOCK_ACCESS_FS_WRITE_FILE}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(rules))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	fd, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	if !errors.Is(err, unix.EACCES) {
		return errIneffective
	}
	return nil
}

// errIneffective reports a restriction that the kernel accepts but does not enforce.
var errIneffective = errors.New("the kernel accepts it, but does not enforce it")

// trySeccomp installs our filter on this thread, and makes a system call that it forbids.
func trySeccomp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	if err := seccomp.Install(); err != nil {
		return err
	}
	if err := unix.Chroot(""); !errors.Is(err, unix.EPERM) { // without a filter: ENOENT
		return errIneffective
	}
	return nil
}
