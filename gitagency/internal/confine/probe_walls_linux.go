package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// roomTrial is a room with a network of its own, and what was done with it.
type roomTrial struct {
	opened   error // why it could not be opened
	bound    error // why nothing could listen in it
	untried  error // no directory could be made by which to find it again
	joined   error // why its keeper gives nothing away
	leftover error // the directory, or the room, could not be removed
}

// tryRoom opens a room that has but a network of its own, listens there, and takes a descriptor from its
// keeper, as whoever joins it does.
func (l laboratory) tryRoom(ctx context.Context) (t roomTrial) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience, fmt.Errorf("it did not open within %s", l.patience))
	defer cancel()
	dir, err := os.MkdirTemp(l.temporary(), "git-agency-probe-")
	if err == nil {
		defer func() { t.leftover = errors.Join(t.leftover, os.Remove(dir)) }()
	}
	label, hold := os.DevNull, []*os.File{}
	if f, openErr := os.Open(dir); err == nil && openErr == nil {
		defer f.Close()
		label, hold = dir, append(hold, f)
	} else {
		t.untried = errors.Join(err, openErr)
	}
	room, err := openRoom(ctx, Plan{Network: NoNetwork, Bare: true}, label, hold...)
	if err != nil {
		t.opened = err
		return t
	}
	defer func() { t.leftover = errors.Join(t.leftover, room.Close()) }()
	listener, err := room.Listen(ctx, "127.0.0.1:0")
	if err == nil {
		err = listener.Close()
	}
	t.bound = err
	if t.untried == nil {
		t.joined = takeFrom(proc.Supervisors(label))
	}
	return t
}

// takeFrom takes a descriptor from a keeper, and lets it go.
func takeFrom(pids []int) error {
	if len(pids) != 1 {
		return fmt.Errorf("%d keepers were found in /proc, not one", len(pids))
	}
	keeper, err := unix.PidfdOpen(pids[0], 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(keeper)
	fd, err := unix.PidfdGetfd(keeper, 0, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_getfd", err)
	}
	return unix.Close(fd)
}

// tryWalls builds all walls around nothing, and runs a program behind them if there is one.
func (l laboratory) tryWalls(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience, fmt.Errorf("they did not stand within %s", l.patience))
	defer cancel()
	plan, err := drawTrial(NoNetwork, Look())
	if err != nil {
		return err
	}
	room, err := openRoom(ctx, plan, os.DevNull)
	if err != nil {
		return err
	}
	return errors.Join(l.runTrue(ctx, room), room.Close())
}

func (l laboratory) runTrue(ctx context.Context, room *proc.Room) error {
	path, err := proc.Look(l.env, "true")
	if err != nil {
		return nil // there is nothing that could be run
	}
	dir, err := os.Open("/")
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = room.Run(ctx, proc.Task{Argv: []string{path}, Dir: dir, Timeout: l.patience}) // it may end as it likes
	return err
}

// mountCalls asks whether the kernel has the calls by which mounts are made one by one, with arguments for
// which it does nothing.
func mountCalls() error {
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

// onThreadToLose does something on a thread that nobody gets afterwards: what is done to it cannot be undone.
// It is never the first one, by which others know this process.
func onThreadToLose(do func() error) error {
	runtime.LockOSThread() // if this is the first one, nobody else gets it meanwhile
	defer runtime.UnlockOSThread()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with us
		if unix.Gettid() == unix.Getpid() {
			runtime.UnlockOSThread()
			done <- onThreadToLose(do) // which takes the first one, as nobody had it
			return
		}
		done <- do()
	}()
	return <-done
}

// restricted has Landlock forbid this thread to write, and tries to.
func restricted() error {
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

// errIneffective is a wall that the kernel builds, and that keeps nobody from anything.
var errIneffective = errors.New("the kernel takes it, and goes on to allow what it forbids")

// filtered has our filter judge what this thread asks for, and asks for something that it forbids.
func filtered() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	if err := install(); err != nil {
		return err
	}
	if err := unix.Chroot(""); !errors.Is(err, unix.EPERM) { // without a filter there is no such directory
		return errIneffective
	}
	return nil
}
