package runs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/terminal"
)

// AttachRequest says which run to attach to, and connects it with its caller.
type AttachRequest struct {
	ID         string   // required: id of the invocation
	Keyboard   *os.File // terminal of the user; nil: the agent is only watched
	DetachKeys []byte   // keys that detach the terminal, as it sends them; empty: none

	Screen         io.Writer          // required: receives what an agent on a terminal writes
	Stdout, Stderr io.Writer          // required: receive the output of another agent
	OnEvent        func(runner.Event) // required: receives what the stream of such an agent tells, instead of Stdout
	OnNote         func(LogNote)      // as in LogsRequest

	CopyJobOutput func(follow bool, stdout, stderr io.Writer) error // as in LogsRequest
}

// AttachResult says why Attach returned.
type AttachResult struct {
	Ended      bool // the run has ended; else it goes on, and the caller was detached
	Invocation core.Invocation
}

// Attach connects the terminal of a user with an interactive agent that is detached, and follows the output of another
// agent. It returns when the run has ended, when the detach keys are typed, or when ctx ends: then the error is its cause.
// The result is valid with that error.
func Attach(ctx context.Context, r *core.Repository, req AttachRequest) (AttachResult, error) {
	inv, err := r.Invocation(req.ID)
	res := AttachResult{Invocation: inv}
	switch m := inv.Entry.Record; {
	case err != nil:
		return res, err
	case m.SessionID == "":
		return res, &NoRunError{ID: inv.ID}
	case !inv.IsSupervised():
		return res, &EndedError{ID: inv.ID, Status: inv.Status}
	case m.OnTerminal:
		res.Ended, err = terminal.Attach(ctx, terminal.AttachRequest{
			Dir: r.Store.InvocationDir(r.ID, inv.ID), Keyboard: req.Keyboard, Out: req.Screen, DetachKeys: req.DetachKeys,
		})
	default:
		res.Ended, err = follow(ctx, r, inv.ID, req)
	}
	switch noHost := errors.Is(err, fs.ErrNotExist); {
	case noHost:
		return res, noHostError(r, inv.ID)
	case !res.Ended:
		return res, err
	}
	res.Invocation, err = waitForRecord(r, inv.ID)
	if err == nil && res.Invocation.IsSupervised() {
		res.Ended, err = false, &DroppedError{ID: inv.ID}
	}
	return res, err
}

// noHostError says why there is no host for a run on a terminal.
func noHostError(r *core.Repository, id string) error {
	inv, err := r.Invocation(id)
	switch {
	case err != nil:
		return err
	case inv.IsSupervised():
		return &ForegroundError{ID: inv.ID}
	}
	return &EndedError{ID: inv.ID, Status: inv.Status} // meanwhile
}

// follow copies the output of an agent without a terminal.
func follow(ctx context.Context, r *core.Repository, id string, req AttachRequest) (ended bool, err error) {
	if req.Keyboard != nil {
		watched, stop, watchErr := terminal.WatchKeys(ctx, req.Keyboard, req.DetachKeys)
		switch {
		case watchErr == nil:
			defer func() { err = errors.Join(err, stop()) }()
			ctx = watched
		case !errors.Is(watchErr, fault.ErrBackground):
			return false, watchErr
		}
	}
	err = Logs(ctx, r, LogsRequest{ID: id, Follow: true, Stdout: req.Stdout, Stderr: req.Stderr, OnEvent: req.OnEvent, OnNote: req.OnNote, CopyJobOutput: req.CopyJobOutput})
	if errors.Is(err, terminal.ErrDetached) {
		return false, nil
	}
	return err == nil, err
}

// waitForRecord returns an invocation once its supervisor has ended, or as it is after a moment: a process that was killed
// closes its connections before it is gone.
func waitForRecord(r *core.Repository, id string) (core.Invocation, error) {
	const moment = 2 * time.Second
	for deadline := time.Now().Add(moment); ; time.Sleep(10 * time.Millisecond) {
		inv, err := r.Invocation(id)
		if err != nil || !inv.IsSupervised() || time.Now().After(deadline) {
			return inv, err
		}
	}
}

// keepTerminal makes a terminal for an interactive agent that is detached, and connects the agent with it. What the agent
// writes there is logged.
func (a *attempt) keepTerminal() (closeTerminal func() error, err error) {
	setupError := func(err error) error { return &fault.SetupError{ID: a.sandbox.ID, Err: err} }
	none := func() error { return nil }
	log, err := a.openLog("terminal", maxTerminalLog)
	if err != nil {
		return none, setupError(err)
	}
	host, err := terminal.OpenHost(a.repo.Store.InvocationDir(a.repo.ID, a.sandbox.ID), log)
	if err != nil {
		return none, setupError(errors.Join(err, log.file.Close()))
	}
	a.req.Terminal, a.req.Stdin, a.req.Stdout, a.req.Stderr = true, host.Slave, host.Slave, host.Slave
	return func() error { return errors.Join(host.Close(), log.file.Close()) }, nil
}

// EndedError reports a run that has ended, so that there is nothing to attach to.
type EndedError struct{ ID, Status string }

func (e *EndedError) Error() string { return "the run of " + e.ID + " has ended: " + e.Status }

// ForegroundError reports an interactive agent that is connected with the terminal that it was started on.
type ForegroundError struct{ ID string }

func (e *ForegroundError) Error() string {
	return "the agent of " + e.ID + " runs in the foreground of another terminal"
}

// DroppedError reports a run whose process has ended the connection of a terminal that accepted no output.
type DroppedError struct{ ID string }

func (e *DroppedError) Error() string {
	return "the connection with the agent of " + e.ID + " was lost; the run goes on"
}
