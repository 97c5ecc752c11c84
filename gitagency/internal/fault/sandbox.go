package fault

import (
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Errors of creating, entering, using and leaving sandboxes.

// SetupCommandError reports a sandbox in which agency.setup failed.
type SetupCommandError struct {
	ID       string
	Command  string
	ExitCode int
	TimedOut bool
	After    time.Duration // run time of the command
	Log      string        // path of its output; empty if that could not be kept
	Err      error         // reason why it could not be run or awaited; nil if it ran
}

func (e *SetupCommandError) Error() string {
	what := fmt.Sprintf("agency.setup failed in sandbox %s, with exit status %d: %s", e.ID, e.ExitCode, e.Command)
	switch {
	case e.Err != nil:
		what = fmt.Sprintf("agency.setup failed in sandbox %s: %v: %s", e.ID, e.Err, e.Command)
	case e.TimedOut:
		what = fmt.Sprintf("agency.setup timed out in sandbox %s, after %s: %s", e.ID, e.After.Round(10*time.Millisecond), e.Command)
	}
	if e.Log != "" {
		what += "; its output is in " + e.Log
	}
	return what
}

func (e *SetupCommandError) Unwrap() error { return e.Err }

// SetupError reports a command that never ran, because its environment could not be set up.
type SetupError struct {
	ID  string
	Err error

	Submitting bool // the submission of the run to its platform failed; 'resume' submits it again
}

func (e *SetupError) Error() string { return fmt.Sprintf("set up sandbox %s: %v", e.ID, e.Err) }

func (e *SetupError) Unwrap() error { return e.Err }

// InvocationError is an error of an operation on an invocation.
type InvocationError struct {
	Operation string // such as "land"; empty when the message of Err says enough
	ID        string
	Err       error
}

func (e *InvocationError) Error() string {
	if e.Operation == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s %s: %v", e.Operation, e.ID, e.Err)
}

func (e *InvocationError) Unwrap() error { return e.Err }

// ImportError reports git state of a sandbox, behind its walls or in a clone, that cannot be imported.
type ImportError struct {
	ID        string
	OfSandbox bool   // the content or configuration of the sandbox is the cause, not this machine
	Tip       string // last commit that was imported, if an invalid object is in a commit after it; else empty
	Path      string // path of that object; empty when unknown
	Diverged  bool   // the branch outside and HEAD inside have diverged; Err says how to merge them
	InClone   bool   // it is in the git directory in the tree of a clone, not behind walls
	Err       error
}

func (e *ImportError) Error() string {
	place := "behind the walls"
	if e.InClone {
		place = "in the clone"
	}
	return fmt.Sprintf("git state %s could not be imported: %v", place, e.Err)
}

func (e *ImportError) Unwrap() error { return e.Err }

// BusyError reports a sandbox in which processes are still at work.
type BusyError struct {
	ID      string
	Waited  time.Duration
	Holders []string // descriptions of these processes, as far as known
}

func (e *BusyError) Error() string {
	who := "another process"
	if len(e.Holders) > 0 {
		who = strings.Join(e.Holders, ", ")
	}
	return fmt.Sprintf("sandbox %s is in use by %s; gave up after %s", e.ID, who, e.Waited.Round(10*time.Millisecond))
}

// RunningError reports a sandbox in which commands run, so that its state cannot be rolled back.
type RunningError struct {
	ID       string
	Programs []string // descriptions of the commands, as far as known
}

func (e *RunningError) Error() string {
	if len(e.Programs) == 0 {
		return "commands run in sandbox " + e.ID
	}
	return fmt.Sprintf("commands run in sandbox %s: %s", e.ID, strings.Join(e.Programs, ", "))
}

// UnfinishedTransitionError reports a rollback or sync that could not be finished. The sandbox is neither in its old state, which
// the snapshot LeftSnapshot keeps, nor in the new one; the next command that works in it finishes the transition.
type UnfinishedTransitionError struct {
	ID           string
	To           string // name of the snapshot to restore
	LeftSnapshot string
	Err          error
}

func (e *UnfinishedTransitionError) Error() string {
	return fmt.Sprintf("sandbox %s stopped half-way to %s; its old state is kept as %s: %v", e.ID, e.To, e.LeftSnapshot, e.Err)
}

func (e *UnfinishedTransitionError) Unwrap() error { return e.Err }

// LostRollbackError reports an interrupted rollback or sync that can no longer be finished.
type LostRollbackError struct {
	ID  string
	Err error
}

func (e *LostRollbackError) Error() string {
	return fmt.Sprintf("a rollback or sync of sandbox %s was interrupted and cannot be finished: %v", e.ID, e.Err)
}

func (e *LostRollbackError) Unwrap() error { return e.Err }

// InsideError refuses to end a sandbox with running commands from a command inside a sandbox: processes elsewhere
// cannot be seen from there.
type InsideError struct {
	ID     string
	Inside string // id of the sandbox that the command runs in
}

func (e *InsideError) Error() string {
	if e.ID == e.Inside {
		return fmt.Sprintf("a command in sandbox %s cannot discard it", e.ID)
	}
	return fmt.Sprintf("commands run in sandbox %s, and cannot be ended from inside of sandbox %s", e.ID, e.Inside)
}

// BehindWallsError refuses a call from behind the walls of a sandbox, where records are not visible.
type BehindWallsError struct{ ID string }

func (e *BehindWallsError) Error() string {
	holder := "a sandbox"
	if e.ID != "" {
		holder = "sandbox " + e.ID
	}
	return "this command runs behind the walls of " + holder + ", where records are not visible; run it outside"
}

// NothingRunsError reports a sandbox without running commands, so that there is no port to reach.
type NothingRunsError struct{ ID string }

func (e *NothingRunsError) Error() string { return "no command runs in sandbox " + e.ID }

// SharedNetworkError reports a sandbox that shares the network of this machine.
type SharedNetworkError struct{ ID string }

func (e *SharedNetworkError) Error() string {
	return fmt.Sprintf("sandbox %s shares the network of this machine: its ports can be reached without forwarding", e.ID)
}

// EndedError reports an invocation whose sandbox is gone because it was landed or discarded.
type EndedError struct {
	ID      string
	Landing string
	Ref     string // ref that keeps its work; empty for a sandbox over plain directories, whose work is a snapshot
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("invocation %s was %s; it has no sandbox any more", e.ID, e.Landing)
}

// NotEndedError reports an invocation that still has its sandbox, so that there is nothing to restore.
type NotEndedError struct{ ID string }

func (e *NotEndedError) Error() string {
	return "invocation " + e.ID + " was neither landed nor discarded; it has its sandbox"
}

// TrashGoneError reports an ended invocation whose content is not in the trash any more.
type TrashGoneError struct {
	ID   string
	Gone string // the ref or archive that does not exist
	Ref  string // trash ref, if only the archive is gone; else empty
}

func (e *TrashGoneError) Error() string {
	return fmt.Sprintf("the content of invocation %s is not in the trash any more: %s does not exist", e.ID, e.Gone)
}

// UnfinishedDiscardError reports an invocation whose discard was interrupted, so that not all of it is in the trash yet.
type UnfinishedDiscardError struct{ ID string }

func (e *UnfinishedDiscardError) Error() string {
	return "the discard of invocation " + e.ID + " was interrupted"
}

// MovedError reports a sandbox tree that "git worktree move" has moved.
type MovedError struct {
	ID   string
	From string
	To   string
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("the tree of invocation %s was moved to %s", e.ID, e.To)
}

// OperationTimeoutError reports an operation in a sandbox that exceeded its timeout and was undone.
type OperationTimeoutError struct {
	What    string // name of the operation
	Timeout time.Duration
}

func (e *OperationTimeoutError) Error() string {
	return fmt.Sprintf("%s took longer than %s; nothing of it was kept", e.What, e.Timeout)
}

// TooLargeError reports a result that is too large to hold in memory.
type TooLargeError struct {
	What  string
	Limit int // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is longer than %d MiB", e.What, e.Limit>>20)
}

// OffBranchError reports a sandbox whose HEAD is not on its own branch.
type OffBranchError struct {
	ID     string
	On     string // the branch that is checked out, or "detached"
	Branch string // the sandbox's own branch
}

func (e *OffBranchError) Error() string {
	if e.On == git.DetachedHead {
		return fmt.Sprintf("HEAD of sandbox %s is detached, and not on its branch, %s", e.ID, e.Branch)
	}
	return fmt.Sprintf("HEAD of sandbox %s is on %s, and not on its branch, %s", e.ID, e.On, e.Branch)
}

// UntrackedInTheWayError reports untracked files in a sandbox in the paths that a merge would write.
type UntrackedInTheWayError struct {
	ID    string
	Path  string   // path of the sandbox
	Files []string // relative to the top of the sandbox
}

func (e *UntrackedInTheWayError) Error() string {
	return fmt.Sprintf("untracked files in %s would be overwritten:\n%s", e.Path, ListPaths(e.Files))
}

// AllowInsideError refuses to widen the walls of a sandbox from inside of a sandbox.
type AllowInsideError struct {
	ID     string
	Inside string // id of the sandbox that the command runs in
}

func (e *AllowInsideError) Error() string {
	return fmt.Sprintf("a command in sandbox %s cannot allow anything to sandbox %s", e.Inside, e.ID)
}

// GrantError refuses a path that is to be allowed to a sandbox.
type GrantError struct {
	ID     string
	Flag   string // --read or --write
	Path   string // as given
	Why    string
	Remedy string // what to do; may be empty
}

func (e *GrantError) Error() string { return fmt.Sprintf("%s %q: %s", e.Flag, e.Path, e.Why) }
