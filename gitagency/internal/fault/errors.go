// Package fault defines the errors that several packages of the domain make or match; package gitagency converts them
// for callers. Errors with results of one package are in that package's errors.go. Package fault describes failures; it
// decides nothing.
package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/archive"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/terminal"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Errors of the packages below, under the names that the domain uses.
type (
	// NoRepositoryError reports that git finds no repository here, or refuses to use it.
	NoRepositoryError = git.NoRepositoryError
	// GitTooOldError reports a git older than the minimum version.
	GitTooOldError = git.TooOldError
	// RefStorageError reports a repository whose refs are not files.
	RefStorageError = git.RefStorageError
	// LockTimeoutError reports that the repository lock was not free in time.
	LockTimeoutError = lock.TimeoutError
	// NotFoundError reports that nothing of a kind has this name or id.
	NotFoundError = store.NotFoundError
	// CorruptRecordError reports a record that cannot be parsed.
	CorruptRecordError = store.CorruptRecordError
	// AmbiguousError reports that several ids begin with the prefix.
	AmbiguousError = store.AmbiguousError
	// NestedRepositoryError reports repositories in a tree, which no commit can hold and which would be lost with it.
	NestedRepositoryError = status.NestedRepositoryError
	// TrashTooLargeError reports files that no commit can hold, and that are too large for an archive in the trash.
	TrashTooLargeError = archive.TooLargeError
	// TrashUnreadableError reports files that neither a commit nor an archive can hold.
	TrashUnreadableError = archive.UnreadableError
	// ObstructionError reports something that no snapshot can hold, where a rollback has to write a file.
	ObstructionError = snapshot.ObstructionError
	// GitLockedError reports that another git is writing in a sandbox, or has left its lock file there.
	GitLockedError = git.LockedError
	// UnreadableError reports a file in a sandbox that cannot be read, so no snapshot could hold it.
	UnreadableError = status.UnreadableError
	// IncompleteError reports an object that is missing or has the wrong type.
	IncompleteError = object.IncompleteError
	// ReadLimitError reports data of a sandbox that exceeds a limit of agency.readLimits.
	ReadLimitError = readlimit.ExceededError
	// StillChangingError reports files in a sandbox that keep changing, so no consistent state can be read.
	StillChangingError = status.StillChangingError
	// UntrustedFilterError reports a file that cannot be read or written without running a filter that an agent may
	// have configured.
	UntrustedFilterError = git.UntrustedFilterError
	// CannotRunError reports a command that does not exist or cannot be executed.
	CannotRunError = proc.CannotRunError
	// OpenFilesError reports a limit of open files that is too low.
	OpenFilesError = proc.OpenFilesError
	// OutputError reports output of a command that could not be passed on.
	OutputError = proc.OutputError
	// UnenforceableError reports a limit that this machine cannot enforce.
	UnenforceableError = confine.UnenforceableError
	// InvalidTreeError is fsck.Error: a tree object of a sandbox has an entry that git would not accept.
	InvalidTreeError = fsck.Error
	// InvalidCommitError reports a malformed commit object of a sandbox; git would not have written it.
	InvalidCommitError = object.InvalidCommitError
	// LocalChangesError reports local changes of the user in the paths that a landing would write.
	LocalChangesError = update.LocalChangesError
	// WorktreeBusyError is update.OperationInProgressError: a merge, rebase or other git operation is in progress in
	// the worktree that has the integration branch checked out.
	WorktreeBusyError = update.OperationInProgressError
	// UnrelatedError reports a sandbox that has no common history with its integration branch.
	UnrelatedError = merge.UnrelatedError
	// NoIdentityError reports that git has no name and email for the author of a commit.
	NoIdentityError = git.NoIdentityError
	// DateError reports a date variable, such as GIT_AUTHOR_DATE, whose value git cannot parse.
	DateError = git.DateError
	// MissingHeadError reports a sandbox whose HEAD leads to a missing commit.
	MissingHeadError = repair.MissingHeadError
	// ConfinementError reports a path that leads out of a sandbox, or has a reserved name.
	ConfinementError = guard.ConfinementError
)

// ErrQuarantine refuses to change a repository from a hook that receives a push: git forbids ref updates there, and
// the received objects may still be dropped.
var ErrQuarantine = errors.New("a push is being received; nothing can be changed before it is accepted")

var (
	// ErrStopped reports a command that was ended from outside, for example by a discard of its sandbox.
	ErrStopped = errors.New("the command was stopped from outside, for example by a discard of its sandbox")
	// ErrSupervisorKilled reports a command whose processes may still run, because its supervisor was killed.
	ErrSupervisorKilled = proc.ErrSupervisorKilled
	// ErrBackground reports a terminal that cannot be read, because this process is not in its foreground process
	// group.
	ErrBackground = terminal.ErrBackground
)

// NoCurrentDirError reports that the current directory no longer exists, as after the removal of a sandbox.
type NoCurrentDirError struct{}

func (*NoCurrentDirError) Error() string { return "the current directory no longer exists" }

// InvalidError reports a value that is malformed, whatever the state of the repository.
type InvalidError struct {
	What  string // e.g. "worktree name"
	Value string
	Want  string // e.g. "2 to 40 of a-z, 0-9 and -"

	Known []string // names of which one may have been meant; nil for a value that is no name

	ConfigKey string // key and setting of a value from git config
	Setting   config.Setting

	AllowFlag string // flag of 'git agency allow' that recorded the value; empty for any other
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("the %s is empty: want %s", e.What, e.Want)
	}
	return fmt.Sprintf("invalid %s %q: want %s", e.What, e.Value, e.Want)
}

// UnsupportedError reports a value of a primitive that exists but cannot be built here.
type UnsupportedError struct {
	Primitive string
	Value     string
	Why       string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Primitive, e.Value, e.Why)
}

// UnsafePathError reports a path that leads elsewhere, or that cannot be resolved or used safely.
type UnsafePathError struct {
	Path string
	Why  string
}

func (e *UnsafePathError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Why) }

// NoFreeIDError reports that every generated id was taken.
type NoFreeIDError struct {
	Tries int
	Taken string // path or ref that the last id collided with
}

func (e *NoFreeIDError) Error() string {
	return fmt.Sprintf("no free id found in %d tries; the last one is taken by %s", e.Tries, e.Taken)
}

// BrokenError reports an invocation or worktree whose record and tree disagree.
type BrokenError struct {
	Kind   string
	ID     string
	Reason string
	Detail string

	Interrupted bool   // the creation was interrupted, and can be undone
	RemovedTree string // path of an adopted worktree that does not exist any more; else empty
	Branch      string // branch that was adopted there; may be empty
	MovedTo     string // path that RemovedTree was moved to; empty if it is not known
	Unlinked    bool   // git's worktree entry of MovedTo names another path
	Registered  bool   // git's worktree entry names RemovedTree
	Locked      bool   // that entry is locked
}

func (e *BrokenError) Error() string {
	text := fmt.Sprintf("%s %s is broken (%s)", e.Kind, e.ID, e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// CorruptEntryError reports a corrupt entry in .git/worktrees, which keeps git from working with any worktree.
type CorruptEntryError struct {
	Path string
	What string
}

func (e *CorruptEntryError) Error() string {
	return fmt.Sprintf("git's worktree entry %s is damaged: %s", e.Path, e.What)
}

// CleanupError reports a clean-up that did not finish after the commit point. The invocation or worktree has ended;
// running the same command again continues the clean-up.
type CleanupError struct {
	Kind string
	ID   string
	Done string // new state, e.g. "discarded"
	Err  error
}

func (e *CleanupError) Error() string {
	return fmt.Sprintf("%s %s is %s, but not all of it could be removed: %v", e.Kind, e.ID, e.Done, e.Err)
}

func (e *CleanupError) Unwrap() error { return e.Err }

// Is reports whether an error of type E is in the chain of err.
func Is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

// ListPaths formats up to 20 paths, quoted and one a line, and the number of further ones.
func ListPaths(paths []string) string {
	const most = 20
	lines := []string{}
	for _, path := range paths[:min(len(paths), most)] {
		lines = append(lines, "  "+quote.Path(path))
	}
	if more := len(paths) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return strings.Join(lines, "\n")
}
