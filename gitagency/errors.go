package gitagency

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Errors that come from the floors below, under the names callers may rely on.
type (
	// NoRepositoryError: git finds no repository here, or will not touch it.
	NoRepositoryError = git.NoRepositoryError
	// GitTooOldError: git is older than what is needed.
	GitTooOldError = git.TooOldError
	// LockTimeoutError: the repository lock was not free in time.
	LockTimeoutError = lock.TimeoutError
	// NotFoundError: no worktree, invocation or snapshot goes by that name.
	NotFoundError = store.NotFoundError
	// CorruptRecordError: the record of a directory cannot be made sense of.
	CorruptRecordError = store.CorruptRecordError
	// AmbiguousError: several ids begin like that.
	AmbiguousError = store.AmbiguousError
	// NestedRepositoryError: repositories inside a tree would be lost with it.
	NestedRepositoryError = git.NestedError
	// InTheWayError: something that no snapshot can hold stands where a rollback has to put a file.
	InTheWayError = git.InTheWayError
	// GitAtWorkError: another git writes in a sandbox, or has left its lock there.
	GitAtWorkError = git.LockedError
	// UnreadableError: a file in a sandbox cannot be read, so that no snapshot could hold it.
	UnreadableError = git.UnreadableError
	// IncompleteError: an object is missing, or is something else.
	IncompleteError = git.IncompleteError
	// UnsettledError: files in a sandbox go on changing, so that it is never seen in one state.
	UnsettledError = git.UnsettledError
	// DistrustedFilterError: a file could not be written without running what an agent may have configured.
	DistrustedFilterError = git.DistrustedError
	// CannotRunError: a command is not there, or cannot be executed.
	CannotRunError = proc.CannotRunError
	// OutputError: what a command wrote could not be passed on.
	OutputError = proc.OutputError
	// UnenforceableError: this machine has nothing to enforce a limit with.
	UnenforceableError = confine.UnenforceableError
	// UnsoundError: a tree of a sandbox has something that no tree may have.
	UnsoundError = git.UnsoundError
	// UnsoundCommitError: a commit of a sandbox is not one that git would have made.
	UnsoundCommitError = git.UnsoundCommitError
	// OverlapsError: files of the person's are where a landing would have to write.
	OverlapsError = git.OverlapsError
	// WorktreeBusyError: git is in the middle of something in the worktree that has the integration branch.
	WorktreeBusyError = git.UnderWayError
	// UnrelatedError: a sandbox has no history in common with its integration branch.
	UnrelatedError = git.UnrelatedError
	// NoIdentityError: git does not know who the user is, and a commit has to be by somebody.
	NoIdentityError = git.NoIdentityError
	// DateError: a variable with the moment of a commit is none that git can read.
	DateError = git.DateError
	// LostHeadError: HEAD of a sandbox leads to a commit that is not there.
	LostHeadError = git.LostHeadError
	// ConfinementError: a path leads out of a sandbox, or is called what nothing in one may be called.
	ConfinementError = guard.ConfinementError
)

// ErrQuarantine refuses to change a repository from a hook that receives a push: git forbids moving
// refs there, and what it received may still be thrown away.
var ErrQuarantine = errors.New("a push is being received; nothing can be changed before it is accepted")

var (
	// ErrStopped is a command that was told to end from outside, as by a discard of its sandbox.
	ErrStopped = errors.New("the command was told to end, as when its sandbox is discarded")
	// ErrLost is a command of which something may still run.
	ErrLost = proc.ErrLost
	// ErrBackground is a terminal that cannot be read from, because we are not in its foreground.
	ErrBackground = proc.ErrBackground
)

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

// InvalidError is a value that no state of the world could make right.
type InvalidError struct {
	What  string // e.g. "worktree name"
	Value string
	Want  string // e.g. "2 to 40 of a-z, 0-9 and -"

	key     string // of one that stands in a configuration
	setting git.Setting
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("the %s is empty: want %s", e.What, e.Want)
	}
	return fmt.Sprintf("invalid %s %q: want %s", e.What, e.Value, e.Want)
}

// SettingError is a setting in git config that does not count.
type SettingError struct{ Setting Setting }

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s = %q (%s): %s", e.Setting.Key, e.Setting.Value, e.Setting.Origin, e.Setting.Problem)
}

// UnsupportedError is a primitive that exists by name but cannot be built here.
type UnsupportedError struct {
	Primitive string
	Value     string
	Why       string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Primitive, e.Value, e.Why)
}

// NotIntegrationError is a tree that does not carry the integration marker.
type NotIntegrationError struct {
	Path     string
	Worktree string // its name, when there is a record that says it should
}

func (e *NotIntegrationError) Error() string {
	if e.Worktree != "" {
		return fmt.Sprintf("worktree %q has lost its marker, %s", e.Worktree, guard.Integration.Path(e.Path))
	}
	return fmt.Sprintf("%s is not in an integration worktree", e.Path)
}

// NotSandboxError is a tree in which nothing may run: it does not carry the sandbox marker, or carries the
// other one.
type NotSandboxError struct {
	Path        string
	Integration bool
}

func (e *NotSandboxError) Error() string {
	if e.Integration {
		return fmt.Sprintf("%s carries the marker of an integration worktree, %s", e.Path, guard.Integration.Path(e.Path))
	}
	return fmt.Sprintf("%s does not carry the marker of a sandbox, %s", e.Path, guard.Sandbox.Path(e.Path))
}

// OverlapError is a tree that would touch another one.
type OverlapError struct {
	Path     string
	Relation string // "is", "lies inside" or "contains"
	Other    string
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%s %s %s", e.Path, e.Relation, e.Other)
}

// InRepositoryError is a directory that belongs to a repository, and needs none of its own.
type InRepositoryError struct{ Path, Repository string }

func (e *InRepositoryError) Error() string {
	if e.Path == e.Repository {
		return e.Path + " is a repository; use that one"
	}
	return fmt.Sprintf("%s belongs to the repository at %s; use that one", e.Path, e.Repository)
}

// NotEmptyError is a directory that something was to be made in place of, and that has something in it.
type NotEmptyError struct{ Path string }

func (e *NotEmptyError) Error() string { return e.Path + " is not empty" }

// UnsafePathError is a path that does not lead where it says.
type UnsafePathError struct {
	Path string
	Why  string
}

func (e *UnsafePathError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Why) }

// TrackedMarkerError is a commit, or what a checkout of it made, that has an .agency of its own.
type TrackedMarkerError struct {
	Commit string
}

func (e *TrackedMarkerError) Error() string {
	return fmt.Sprintf("commit %s brings its own %s, which is reserved for markers", e.Commit, guard.Dir)
}

// SandboxError is a sandbox where an integration worktree was wanted.
type SandboxError struct{ Path string }

func (e *SandboxError) Error() string { return e.Path + " is a sandbox" }

// NotWorktreeError is a path that is no worktree of the repository.
type NotWorktreeError struct{ Path string }

func (e *NotWorktreeError) Error() string {
	return e.Path + " is not in a worktree of this repository"
}

// NameTakenError is a name that a present worktree has already.
type NameTakenError struct {
	Name string
	ID   string
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("there is a worktree %q already (%s)", e.Name, e.ID)
}

// AdoptedError is a tree that is an integration worktree already.
type AdoptedError struct {
	Path string
	Name string
}

func (e *AdoptedError) Error() string {
	return fmt.Sprintf("%s is an integration worktree already, called %q", e.Path, e.Name)
}

// NoCommitError is a name that leads to no commit.
type NoCommitError struct {
	Name   string
	Unborn bool // the branch is there, but nothing was ever committed on it
}

func (e *NoCommitError) Error() string {
	if e.Unborn {
		return fmt.Sprintf("branch %q has no commits yet", e.Name)
	}
	return fmt.Sprintf("%q does not name a commit", e.Name)
}

// BranchInTheWayError is a branch called "agency", below which no other branch can exist.
type BranchInTheWayError struct{ Branch string }

func (e *BranchInTheWayError) Error() string {
	return fmt.Sprintf("a branch called %q is in the way of the branches %s/…", e.Branch, e.Branch)
}

// NoFreeIDError is an id source that kept proposing what is taken.
type NoFreeIDError struct {
	Tries int
	Taken string // what stood in the way of the last one
}

func (e *NoFreeIDError) Error() string {
	return fmt.Sprintf("no free id in %d tries; in the way of the last one: %s", e.Tries, e.Taken)
}

// ArchivedError is a worktree that was archived.
type ArchivedError struct {
	Name   string
	ID     string
	Branch string // its own, which is still there; empty when it had none

	Invocation string // whose work was to land there, if that was asked for
}

func (e *ArchivedError) Error() string {
	return fmt.Sprintf("worktree %q (%s) is archived", e.Name, e.ID)
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

// BrokenError is an invocation or worktree whose record and tree disagree.
type BrokenError struct {
	Kind   string
	ID     string
	Reason string
	Detail string

	Interrupted bool // its creation was interrupted, and can be undone
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s %s is broken (%s): %s", e.Kind, e.ID, e.Reason, e.Detail)
}

// DamagedError is a snapshot of which objects are missing, or are not what their names say.
type DamagedError struct {
	Snapshot string // as people call it
	Commit   string
	Objects  int  // how many
	Stopped  bool // there may be more
}

func (e *DamagedError) Error() string {
	what := fmt.Sprintf("%d objects", e.Objects)
	if e.Objects == 1 {
		what = "1 object"
	}
	if e.Stopped {
		what = "at least " + what
	}
	return fmt.Sprintf("snapshot %s (%s) is damaged: %s", e.Snapshot, e.Commit, what)
}

// FindingError is something wrong that only a person can mend.
type FindingError struct{ Finding Finding }

func (e *FindingError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Finding.ID, e.Finding.What, e.Finding.Code)
}

// CorruptEntryError is an entry of git's own that keeps git from working with any worktree.
type CorruptEntryError struct {
	Path string
	What string
}

func (e *CorruptEntryError) Error() string {
	return fmt.Sprintf("git's worktree entry %s is damaged: %s", e.Path, e.What)
}

// DirtyError is a tree with work that is in no commit.
type DirtyError struct{ Path string }

func (e *DirtyError) Error() string { return e.Path + " has uncommitted or untracked files" }

// WorkedInError is a tree whose creation was never finished, and in which there is work all the same.
type WorkedInError struct{ Path string }

func (e *WorkedInError) Error() string {
	return e.Path + " was never finished, and still somebody worked in it"
}

// LiveError is a worktree that sandboxes still depend on.
type LiveError struct {
	Name        string
	Invocations []string
}

func (e *LiveError) Error() string {
	return fmt.Sprintf("worktree %q still has sandboxes: %s", e.Name, strings.Join(e.Invocations, ", "))
}

// CleanupError is a clean-up that did not finish after the decision was already on disk. The thing
// has ended; running the same command again goes on.
type CleanupError struct {
	Kind string
	ID   string
	Done string // e.g. "discarded"
	Err  error
}

func (e *CleanupError) Error() string {
	return fmt.Sprintf("%s %s is %s, but not all of it could be removed: %v", e.Kind, e.ID, e.Done, e.Err)
}

func (e *CleanupError) Unwrap() error { return e.Err }

// ForeignFileError is a file, or what else stands in its place, that is not ours to overwrite.
type ForeignFileError struct {
	Path string
	Why  string
}

func (e *ForeignFileError) Error() string { return fmt.Sprintf("%s is in the way: %s", e.Path, e.Why) }

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

// OffBranchError is a sandbox in which something else than its own branch is checked out.
type OffBranchError struct {
	ID     string
	On     string // a branch, or "detached"
	Branch string // its own
}

func (e *OffBranchError) Error() string {
	if e.On == git.Detached {
		return fmt.Sprintf("HEAD of sandbox %s is detached, and not on its branch, %s", e.ID, e.Branch)
	}
	return fmt.Sprintf("HEAD of sandbox %s is on %s, and not on its branch, %s", e.ID, e.On, e.Branch)
}

// StraysInTheWayError is files in a sandbox that git does not know, where a merge would put others.
type StraysInTheWayError struct {
	ID    string
	Path  string   // of the sandbox
	Files []string // in it
}

func (e *StraysInTheWayError) Error() string {
	return fmt.Sprintf("untracked files in %s are in the way of others:\n%s", e.Path, someOf(e.Files))
}

// is reports whether an error of type E is in the chain.
func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
