package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// ExclusiveLock keeps all commands and other users out of a sandbox until it is closed.
type ExclusiveLock struct {
	lockFiles      []*os.File
	InvocationLock *os.File // lock of the invocation directory; helper processes in the sandbox inherit it
	EndedCommands  int      // number of commands that were ended to get the lock
	Stopped        bool     // something ran in the sandbox, a command or an import
}

func (v *ExclusiveLock) Close() {
	for _, f := range v.lockFiles {
		_ = f.Close()
	}
}

// LockExclusive ends the commands that run in a sandbox and waits until all other users have left it. Callers must
// first check for everything that would prevent ending the sandbox: ended commands cannot be restarted.
func LockExclusive(ctx context.Context, r *core.Repository, id string) (v ExclusiveLock, err error) {
	timeout, err := r.Settings.LockTimeout()
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil {
			v.Close()
			if v.EndedCommands > 0 {
				r.Warn("commands in sandbox %s that were ended: %d", id, v.EndedCommands)
			}
		}
	}()
	// The lock of the sandbox directory comes first. Everyone who enters takes it, so no new users arrive while we
	// wait for the second lock.
	sandboxLock, err := lock.AcquireDirExclusive(ctx, r.Store.SandboxDir(r.ID, id), timeout)
	switch {
	case err == nil:
		v.lockFiles = append(v.lockFiles, sandboxLock)
	case !errors.Is(err, fs.ErrNotExist): // a sandbox without a tree cannot be entered
		return v, err
	}
	invocationDir := r.Store.InvocationDir(r.ID, id)
	invocationLock, err := lock.AcquireDirExclusive(ctx, invocationDir, 0)
	if fault.Is[*fault.LockTimeoutError](err) || errors.Is(err, fs.ErrNotExist) && len(proc.FindSupervisors(invocationDir)) > 0 {
		v.Stopped = true
		invocationLock, err = stopCommands(ctx, r, id, invocationDir, timeout, &v.EndedCommands)
	}
	switch {
	case err == nil && invocationLock != nil:
		v.lockFiles, v.InvocationLock = append(v.lockFiles, invocationLock), invocationLock
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return v, err
	}
	confine.RemoveCgroups(id) // left by commands whose git-agency process was killed
	return v, nil
}

// stopCommands stops all commands in a sandbox, again and again until the lock of its invocation directory is free,
// and returns that lock.
func stopCommands(ctx context.Context, r *core.Repository, id, invocationDir string, timeout time.Duration, commands *int) (*os.File, error) {
	type outcome struct {
		held *os.File
		err  error
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	acquired := make(chan outcome, 1)
	go func() {
		held, err := lock.AcquireDirExclusive(waiting, invocationDir, -1)
		for errors.Is(err, fs.ErrNotExist) && len(proc.FindSupervisors(invocationDir)) > 0 && waiting.Err() == nil {
			time.Sleep(10 * time.Millisecond) // a missing invocation directory cannot be locked, only polled
		}
		acquired <- outcome{held, err}
	}()
	started, stops := time.Now(), StopRequests{}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		for _, pid := range proc.FindSupervisors(invocationDir) {
			if stops.IsNew(pid) {
				*commands += proc.CountTasks(pid)
			}
			if err := stops.Ask(pid); err != nil {
				r.Warn("end a command in sandbox %s: %v", id, err)
			}
		}
		select {
		case o := <-acquired:
			return o.held, o.err
		case <-ticker.C:
		}
		if timeout >= 0 && time.Since(started) > timeout+2*DefaultGrace {
			stop()
			if o := <-acquired; o.err == nil {
				return o.held, nil
			}
			return nil, &fault.BusyError{ID: id, Waited: time.Since(started), Holders: proc.FileUsers(invocationDir)}
		}
	}
}

// StopRequests asks the supervisors of commands to end them: at once, and again after each grace period, when they use SIGKILL. The
// caller searches for supervisors in rounds, because a command that has just been started may not have one yet.
type StopRequests map[int]time.Time // when each was asked last

// IsNew reports whether a supervisor was not asked yet.
func (s StopRequests) IsNew(pid int) bool { return s[pid].IsZero() }

// Ask asks a supervisor, unless its grace period still lasts.
func (s StopRequests) Ask(pid int) error {
	if !s.IsNew(pid) && time.Since(s[pid]) < DefaultGrace {
		return nil
	}
	s[pid] = time.Now()
	return proc.StopTask(pid)
}

// CheckBeforeStop checks, if commands run in the sandbox, whether anything would prevent ending the sandbox after
// they are stopped.
func CheckBeforeStop(ctx context.Context, r *core.Repository, repo *git.Repo, s git.WorktreeSpec, o core.TrashOptions) error {
	held, err := lock.AcquireDirExclusive(ctx, r.Store.InvocationDir(r.ID, s.Name), 0)
	if !fault.Is[*fault.LockTimeoutError](err) {
		if held != nil {
			err = held.Close()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if inside := proc.Getenv(r.Opts.Env, core.InvocationVariable); inside != "" {
		return &fault.InsideError{ID: s.Name, Inside: inside}
	}
	return r.CheckTrash(ctx, repo, s, o)
}
