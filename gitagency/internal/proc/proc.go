// Package proc is the only place that starts other programs.
//
// What Run runs gets a session of its own, so that a Ctrl-C meant for us does not reach it behind
// our back and so that "all of it" can be signalled at once. When a program fails or is cancelled,
// Run returns only after its whole process group is gone: whoever cleans up afterwards does not
// race a grandchild that still writes. What Feed starts is another kind: a program that stands
// between us and the terminal, and shares both the terminal and its signals with us. A Task is
// somebody else's program, which is not trusted to end: a supervisor sees to it that nothing of it is
// left, and a Terminal of its own stands between it and the person's. A Room is where several tasks run
// behind the same walls; what these are made of, only a Builder knows.
//
// The package knows nothing of git or of agents but the name that supervisors go by, and hands nothing
// to a shell by itself.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command is a program to run to its end with its output captured.
type Command struct {
	Argv  []string // required; Argv[0] is looked up in PATH
	Dir   string
	Env   []string // nil means the environment of this process
	Stdin io.Reader

	// Stdout, when not nil, gets what the program writes, which is then not in the result. One that refuses to take
	// more ends the program.
	Stdout io.Writer

	// Inherit lists descriptors the program keeps open (as 3, 4, …) for as long as it lives.
	Inherit []*os.File

	// Namespaces, when not nil, is what the program has to itself instead of sharing it with us.
	Namespaces *Namespaces

	// Grace is the time between SIGTERM and SIGKILL after cancellation; zero means five seconds.
	Grace time.Duration
}

// Namespaces is what a program has to itself. With them always comes a user namespace, in which the
// program is root and our user and group are the only ones there are. Only Linux has them; elsewhere,
// as where the kernel refuses, the program does not start.
type Namespaces struct {
	// Mount: what the program mounts is seen by nobody else and gone when it ends. The program makes
	// this one itself, by the power it has in its user namespace: a namespace without power, such as
	// some security modules hand out, does not get past here.
	Mount bool

	// PID: the program is process 1 and takes everything it started with it. Like every process 1 it
	// ignores SIGTERM unless it says otherwise, so that cancelling it takes all of Grace.
	PID bool
}

// Result is what a program left behind.
type Result struct {
	Stdout   []byte
	Stderr   []byte
	ExitCode int // 128+n for a program killed by signal n
}

// NotStartedError is a program that never ran, so that nothing can have come of it.
type NotStartedError struct{ Err error }

func (e *NotStartedError) Error() string { return e.Err.Error() }
func (e *NotStartedError) Unwrap() error { return e.Err }

// Run runs the command. A program that ran and failed is not an error: see Result.ExitCode.
// An error means it could not be started (*NotStartedError), or that ctx ended first (then it wraps
// context.Cause).
func Run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("no program named")
	}
	if err := context.Cause(ctx); err != nil {
		return Result{}, &NotStartedError{err}
	}
	grace := c.Grace
	if grace == 0 {
		grace = 5 * time.Second
	}

	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = c.Dir, c.Env, c.Stdin, c.Inherit
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Namespaces != nil {
		if err := c.Namespaces.ask(cmd.SysProcAttr); err != nil {
			return Result{}, &NotStartedError{err}
		}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace

	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // Start knows only that the context has ended
		}
		return Result{}, &NotStartedError{err}
	}
	waitErr := cmd.Wait()
	res := Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exitCode(cmd.ProcessState)}
	if waitErr == nil || errors.Is(waitErr, exec.ErrWaitDelay) && res.ExitCode == 0 {
		return res, nil // a daemon that kept the output open is not a failure
	}

	groupErr := endGroup(cmd.Process.Pid, grace)
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

// endGroup kills what is left of a process group and waits until none of it can do anything more.
func endGroup(pgid int, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := syscall.Kill(-pgid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) || allZombies(pgid) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process group %d did not end within %s", pgid, patience)
		}
		time.Sleep(pause)
	}
}

// allZombies reports whether only dead processes are left in a group. In a container whose first
// process does not reap, they stay for ever; they write nothing. Without a /proc it says no.
func allZombies(pgid int) bool {
	all, ok := pids()
	for _, pid := range all {
		if s, there := statusOf(pid); there && s.group == pgid && !s.ended() {
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
