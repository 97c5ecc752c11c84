package gitagency

import (
	"fmt"
	"strings"
	"time"
)

// What keeps a sandbox from being made, entered, worked in or left.

// SetupError is a command that never ran, because what it needs around it could not be set up.
type SetupError struct {
	ID  string
	Err error
}

func (e *SetupError) Error() string { return fmt.Sprintf("set up sandbox %s: %v", e.ID, e.Err) }
func (e *SetupError) Unwrap() error { return e.Err }

// BusyError is a sandbox in which somebody is still at work.
type BusyError struct {
	ID      string
	Waited  time.Duration
	Holders []string // what can be told of them
}

func (e *BusyError) Error() string {
	who := "somebody"
	if len(e.Holders) > 0 {
		who = strings.Join(e.Holders, ", ")
	}
	return fmt.Sprintf("%s is still at work in sandbox %s; gave up after %s", who, e.ID, e.Waited.Round(10*time.Millisecond))
}

// RunningError is a sandbox in which commands run, so that its state cannot be put back.
type RunningError struct {
	ID       string
	Programs []string // what can be told of them
}

func (e *RunningError) Error() string {
	if len(e.Programs) == 0 {
		return "commands run in sandbox " + e.ID
	}
	return fmt.Sprintf("commands run in sandbox %s: %s", e.ID, strings.Join(e.Programs, ", "))
}

// HalfWayError is a rollback or sync that could not be finished. The sandbox is neither in the state that it left, which Left
// keeps, nor in the one that it goes to; the next command that works in it finishes it.
type HalfWayError struct {
	ID   string
	To   string // by the name that people call it
	Left string
	Err  error
}

func (e *HalfWayError) Error() string {
	return fmt.Sprintf("sandbox %s is half-way to %s; the state it left is kept as %s: %v", e.ID, e.To, e.Left, e.Err)
}

func (e *HalfWayError) Unwrap() error { return e.Err }

// LostRollbackError is a rollback or sync that was interrupted and that nobody can finish any more.
type LostRollbackError struct {
	ID  string
	Err error
}

func (e *LostRollbackError) Error() string {
	return fmt.Sprintf("a rollback or sync of sandbox %s was interrupted and cannot be finished: %v", e.ID, e.Err)
}

func (e *LostRollbackError) Unwrap() error { return e.Err }

// InsideError is a sandbox in which commands run, and which a command in a sandbox wants to end: those that
// run elsewhere cannot be seen from there.
type InsideError struct {
	ID     string
	Inside string // the sandbox that the command runs in
}

func (e *InsideError) Error() string {
	if e.ID == e.Inside {
		return fmt.Sprintf("a command in sandbox %s cannot discard it", e.ID)
	}
	return fmt.Sprintf("commands run in sandbox %s, and cannot be ended from inside of sandbox %s", e.ID, e.Inside)
}

// BehindWallsError is a call from behind the walls of a sandbox, from where nothing of what is asked for can
// be seen.
type BehindWallsError struct{ ID string }

func (e *BehindWallsError) Error() string {
	return "this is sandbox " + e.ID + ", behind its walls, from where no record can be seen; run it outside"
}

// NothingRunsError is a sandbox in which no command runs, and of which therefore nothing can be reached.
type NothingRunsError struct{ ID string }

func (e *NothingRunsError) Error() string { return "no command runs in sandbox " + e.ID }

// SharedNetworkError is a sandbox that has no network of its own.
type SharedNetworkError struct{ ID string }

func (e *SharedNetworkError) Error() string {
	return fmt.Sprintf("sandbox %s has the network of this machine: its ports can be reached already", e.ID)
}

// PortTakenError is a port of this machine on which somebody listens already, or not everybody may.
type PortTakenError struct {
	Port     Port
	Reserved bool // for root
}

func (e *PortTakenError) Error() string {
	if e.Reserved {
		return fmt.Sprintf("port %d of this machine is not for everybody to listen on", e.Port.Outside)
	}
	return fmt.Sprintf("port %d of this machine is in use already", e.Port.Outside)
}

// EndedError is an invocation whose sandbox is gone because it was landed or discarded.
type EndedError struct {
	ID      string
	Landing string
	Ref     string // where its work is kept
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("invocation %s was %s; it has no sandbox any more", e.ID, e.Landing)
}

// MovedError is a sandbox whose tree git knows elsewhere than where it belongs.
type MovedError struct {
	ID   string
	From string
	To   string
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("the tree of invocation %s was moved to %s", e.ID, e.To)
}

// LiveError is a worktree that sandboxes still depend on.
type LiveError struct {
	Name        string
	Invocations []string
}

func (e *LiveError) Error() string {
	return fmt.Sprintf("worktree %q still has sandboxes: %s", e.Name, strings.Join(e.Invocations, ", "))
}

// OverdueError is something in a sandbox that took longer than it may, and was taken back.
type OverdueError struct {
	What    string // the command
	Timeout time.Duration
}

func (e *OverdueError) Error() string {
	return fmt.Sprintf("%s took longer than %s; nothing of it was kept", e.What, e.Timeout)
}

// TooMuchError is an answer that is too long to be held in memory.
type TooMuchError struct {
	What  string
	Limit int // in bytes
}

func (e *TooMuchError) Error() string {
	return fmt.Sprintf("%s is longer than %d MiB", e.What, e.Limit>>20)
}
