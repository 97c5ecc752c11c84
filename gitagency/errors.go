package gitagency

import (
	"errors"
	"fmt"

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

// UnsafePathError is a path that does not lead where it says.
type UnsafePathError struct {
	Path string
	Why  string
}

func (e *UnsafePathError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Why) }

// NoFreeIDError is an id source that kept proposing what is taken.
type NoFreeIDError struct {
	Tries int
	Taken string // what stood in the way of the last one
}

func (e *NoFreeIDError) Error() string {
	return fmt.Sprintf("no free id in %d tries; in the way of the last one: %s", e.Tries, e.Taken)
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

// is reports whether an error of type E is in the chain.
func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
