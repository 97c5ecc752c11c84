// Package proc starts other programs; no other package of the library does.
//
// Run starts a program in its own session, so that a Ctrl-C meant for us does not reach it, and so that its process
// group can be signalled at once. When a program fails or is cancelled, Run returns only after its whole process group
// is gone: a caller that cleans up afterwards does not race with a grandchild that still writes. A Task is an untrusted
// program that may not end by itself: a supervisor process makes sure that nothing of it is left, and package
// terminal gives it its own pseudo-terminal. A Namespace runs several tasks behind the same walls; only a WallBuilder knows how to
// build those.
//
// The package must never know about git or agents (except for the process name of supervisors), and never passes
// anything to a shell by itself.
package proc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
)

// Command is a program to run to its end with its output captured.
type Command struct {
	Argv  []string // required; Argv[0] is looked up in PATH
	Dir   string
	Env   []string // nil: the environment of this process
	Stdin io.Reader

	// Stdout, when not nil, receives the program's output, which is then not in the result. A write error ends the
	// program.
	Stdout io.Writer

	// Inherit lists descriptors that the program keeps open (as 3, 4, …) for as long as it runs.
	Inherit []*os.File

	// Unshare, when not nil, lists the namespaces that the program gets of its own.
	Unshare *Unshare

	// Mount, when not nil, is a file system that only this program sees. It excludes Unshare.
	Mount *Mount

	// Grace is the time between SIGTERM and SIGKILL after cancellation; zero means five seconds.
	Grace time.Duration

	// Restrict, when not nil, restricts the calling thread and so the program, which inherits the restrictions. It is called
	// on a thread of its own that starts nothing else.
	Restrict func() error

	// Limits are set as soon as the program has started. Its result tells whether it exceeded one of them.
	Limits Limits

	// DieWithParent makes the kernel kill the program and its process group when this process ends, also by SIGKILL. Only
	// Linux can do that; on other systems the program goes on. Neither a program with Restrict nor a Coprocess can have it.
	DieWithParent bool
}

// Unshare lists the namespaces that a program gets of its own. They always come with a user namespace, in which the
// program is root and only our user and group are mapped. Only Linux has them; on other systems, or where the kernel
// refuses, the program does not start.
type Unshare struct {
	// Mount: the program's mounts are visible to no other process and gone when it ends. The program unshares this
	// namespace itself, by its capabilities in the user namespace: a user namespace without capabilities, as created
	// under some security modules, makes the start fail here.
	Mount bool

	// PID: the program is process 1, and all processes it started are killed when it ends. Like every process 1 it
	// ignores SIGTERM unless it installs a handler, so that cancelling it may take all of Grace.
	PID bool
}

// Mount is a file system that is mounted at a path for one program. Only Linux has that.
type Mount struct {
	File *os.File // a mount that is attached nowhere yet: see Namespace.CloneMount
	Path string
}

// Result is the output and exit code of a program.
type Result struct {
	Stdout   []byte
	Stderr   []byte
	ExitCode int // 128+n for a program killed by signal n

	CPUTime time.Duration // processor time that the program used
	MaxRSS  int64         // most bytes of memory that it used at once; 0 when unknown
}

// newResult returns the result of a program that has ended, without its standard output.
func newResult(state *os.ProcessState, stderr []byte) Result {
	res := Result{Stderr: stderr, ExitCode: exitCode(state)}
	if state != nil {
		res.CPUTime, res.MaxRSS = state.UserTime()+state.SystemTime(), maxRSS(state)
	}
	return res
}

// NotStartedError reports that a program was never executed, so that it cannot have had any effect.
type NotStartedError struct{ Err error }

func (e *NotStartedError) Error() string { return e.Err.Error() }
func (e *NotStartedError) Unwrap() error { return e.Err }

// Run runs the command. A program that ran and failed is not an error: see Result.ExitCode. The error is a
// *NotStartedError if the program could not be started, or wraps context.Cause if ctx ended first.
func Run(ctx context.Context, c Command) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd, err := c.prepare(ctx, &stdout, &stderr)
	if err != nil {
		return Result{}, err
	}
	parent, err := c.newParentPipe(cmd)
	if err != nil {
		return Result{}, &NotStartedError{err}
	}
	defer parent.close()

	if err := startRestricted(cmd, c.Restrict); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // the error of Start only says that the context has ended
		}
		return Result{}, &NotStartedError{err}
	}
	limitErr := errors.Join(c.Limits.limitStarted(cmd.Process.Pid), parent.killGroupWithUs(cmd.Process.Pid))
	if limitErr != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it must not run without its limits
	}
	waitErr := cmd.Wait()
	res := newResult(cmd.ProcessState, stderr.Bytes())
	res.Stdout = stdout.Bytes()
	if limitErr != nil {
		return res, errors.Join(limitErr, killGroup(cmd.Process.Pid))
	}
	if waitErr == nil || errors.Is(waitErr, exec.ErrWaitDelay) && res.ExitCode == 0 {
		if c.Restrict != nil {
			return res, killGroup(cmd.Process.Pid) // its results are not to change any more
		}
		return res, nil // a daemon that kept the output open is not a failure
	}

	groupErr := killGroup(cmd.Process.Pid)
	var exit *exec.ExitError
	switch {
	case context.Cause(ctx) != nil:
		return res, errors.Join(context.Cause(ctx), groupErr)
	case errors.As(waitErr, &exit):
		return res, groupErr
	default:
		return res, errors.Join(waitErr, groupErr)
	}
}

// prepare checks a command and returns it ready to be started, as the leader of a process group of its own.
func (c Command) prepare(ctx context.Context, stdout, stderr io.Writer) (*exec.Cmd, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("no program given")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, &NotStartedError{err}
	}
	if c.DieWithParent && c.Restrict != nil { // the signal would kill it when the restricted thread, which started it, ends
		return nil, &NotStartedError{errors.New("a program with Restrict cannot have DieWithParent")}
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = c.Dir, c.Env, c.Stdin, c.Inherit
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Unshare != nil {
		if err := c.Unshare.setSysProcAttr(cmd.SysProcAttr); err != nil {
			return nil, &NotStartedError{err}
		}
	}
	if c.Mount != nil {
		if err := c.Mount.applyMount(cmd); err != nil {
			return nil, &NotStartedError{err}
		}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(c.Grace, 5*time.Second)
	return cmd, nil
}

// killPatience bounds the wait for processes after SIGKILL. It is not the grace of SIGTERM, which may be short: a killed
// process only needs the processor once, or has to leave an uninterruptible system call.
const killPatience = 10 * time.Second

// killGroup sends SIGKILL to a process group and waits until only zombies are left of it.
func killGroup(pgid int) error {
	deadline := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := syscall.Kill(-pgid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) || allZombies(pgid) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process group %d did not end within %s", pgid, killPatience)
		}
		time.Sleep(pause)
	}
}

// allZombies reports whether only zombies are left in a process group. In a container whose process 1 does not reap,
// zombies stay for ever; they are harmless. Without a /proc it returns false.
func allZombies(pgid int) bool {
	all, ok := procfs.PIDs()
	for _, pid := range all {
		if s, there := procfs.ReadStat(pid); there && s.Group == pgid && !s.IsDead() {
			return false
		}
	}
	return ok
}

func exitCode(state *os.ProcessState) int {
	if state == nil {
		return -1
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
