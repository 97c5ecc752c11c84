package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// SetupRequest says how to run agency.setup.
type SetupRequest struct {
	Output  io.Writer       // gets the output as it is written, besides the log; may be nil
	Timeout time.Duration   // as in ExecOptions
	Force   <-chan struct{} // as in ExecOptions
}

// Setup runs the command of agency.setup in the sandbox, behind its walls, and keeps its output in setup.log. It does
// nothing if there is no such command, or if one has succeeded in the sandbox before. While another process runs it, Setup
// waits for that. A command that fails or times out is a *fault.SetupCommandError; the next call runs it again, as after a
// kill. Other errors are those of Exec.
func (s *Sandbox) Setup(ctx context.Context, req SetupRequest) (err error) {
	line, ignored, err := s.Repo.Settings.ShellCommand(settings.SetupKey)
	if err != nil {
		return err
	}
	s.Repo.Settings.WarnIgnored(settings.SetupKey, ignored)
	if line == "" || s.isSetUp() {
		return nil
	}
	unlock, err := s.lockSetup(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if s.isSetUp() { // by the process that had the lock
		return nil
	}
	return s.runSetup(ctx, line, req)
}

func (s *Sandbox) isSetUp() bool {
	return s.Repo.Store.Invocation(s.Repo.ID, s.ID, nil).Record.SetupAt != nil
}

// lockSetup takes the lock with which one process at a time runs agency.setup.
func (s *Sandbox) lockSetup(ctx context.Context) (unlock func() error, err error) {
	unlock, err = lock.HoldDir(ctx, s.Repo.Store.SetupLockDir(s.Repo.ID, s.ID))
	if errors.Is(err, fs.ErrNotExist) {
		err = &fault.NotFoundError{Kind: "invocation", Query: s.ID}
	}
	return unlock, err
}

func (s *Sandbox) runSetup(ctx context.Context, line string, req SetupRequest) error {
	r := s.Repo
	log := store.OpenCommandLog(r.Store.SetupLogPath(r.ID, s.ID), req.Output, r.Warn)
	defer log.Close()
	log.WriteFile(fmt.Appendf(nil, "# %s\n$ %s\n", r.Now().Format(time.RFC3339), line))
	res, err := s.Exec(ctx, ExecOptions{Argv: []string{"sh", "-c", line}, Stdout: log, Stderr: log, Timeout: req.Timeout, Force: req.Force})
	r.AppendEvent(s.ID, setupEvent{r.EventTime(), "setup", line, res.ExitCode, res.TimedOut, res.Duration.Milliseconds()})
	switch {
	case err != nil && !fault.Is[*fault.CannotRunError](err):
		return fmt.Errorf("agency.setup: %w", err)
	case err != nil || res.ExitCode != 0:
		return &fault.SetupCommandError{ID: s.ID, Command: line, ExitCode: res.ExitCode, TimedOut: res.TimedOut, After: res.Duration, Log: log.Path, Err: err}
	}
	return r.Store.UpdateInvocationMeta(r.ID, s.ID, func(m *store.InvocationMeta) {
		now := r.Now()
		m.SetupAt = &now
	})
}

type setupEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Command  string    `json:"command"`
	ExitCode int       `json:"exit_code"`
	TimedOut bool      `json:"timed_out"`
	Duration int64     `json:"duration_ms"`
}
