package gitagency

import (
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// Errors without data. Use errors.Is.
var (
	// ErrQuarantine refuses to change a repository from a hook that receives a push: git forbids ref updates there, and
	// the received objects may still be dropped.
	ErrQuarantine = fault.ErrQuarantine
	// ErrStopped reports a command that was ended from outside, for example by a discard of its sandbox.
	ErrStopped = fault.ErrStopped
	// ErrSupervisorKilled reports a command whose processes may still run, because its supervisor was killed.
	ErrSupervisorKilled = fault.ErrSupervisorKilled
	// ErrBackground reports a terminal that cannot be read, because this process is not in its foreground process
	// group.
	ErrBackground = fault.ErrBackground
)

// StateError reports that the state of the repository, a worktree or a sandbox does not allow the request.
// Package reason says for each reason which of the other fields are set.
type StateError struct {
	Reason    reason.Reason
	ID        string   // invocation, or worktree
	Name      string   // of a worktree, branch, remote, revision, object, operation, variable, command, port or snapshot
	Path      string   // absolute, or relative to the sandbox
	Branch    string   // short name
	Commit    string   // full id
	Operation string   // git operation in progress: "merge", "rebase", "am", "cherry-pick", "revert", "bisect", "conflicts" or "index.lock"; for reason.MissingBranch arguments of git
	Other     string   // second id, path or name
	Others    []string // further names or paths
	Err       error    // the message, and its causes
}

func (e *StateError) Error() string { return e.Err.Error() }

func (e *StateError) Unwrap() error { return e.Err }

// RefusedError reports a request that would break an invariant, such as work in an integration worktree, or run code
// that an agent may have written. Package reason says for each reason which of the other fields are set.
type RefusedError StateError

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// InvalidError reports a value that is malformed, whatever the state of the repository.
type InvalidError struct {
	What  string // e.g. "worktree name"
	Value string
	Want  string // e.g. "2 to 40 of a-z, 0-9 and -"

	Known []string // names of which one may have been meant; nil for a value that is no name

	ConfigKey string // key of a value from git config; else empty
	Scope     string // its scope: system, global, local, worktree or command
	Origin    string // its origin, as in file:/home/me/.gitconfig
}

func (e *InvalidError) Error() string {
	return (&fault.InvalidError{What: e.What, Value: e.Value, Want: e.Want}).Error()
}

// NotFoundError reports that nothing of this kind has this name or id.
type NotFoundError struct {
	Kind  string // "invocation", "worktree", "snapshot", "directory" or "finding"
	Query string
	Named []string // ids of the invocations with this name, if an invocation was looked for; newest first

	Archived       string // id of the newest archived worktree with this name, if a worktree was looked for
	ArchivedBranch string // its branch; empty if it had none
}

func (e *NotFoundError) Error() string {
	return (&fault.NotFoundError{Kind: e.Kind, Query: e.Query, Archived: e.Archived}).Error()
}

// AmbiguousError reports a prefix that several ids share.
type AmbiguousError struct {
	Kind    string
	Query   string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return (&fault.AmbiguousError{Kind: e.Kind, Query: e.Query, Matches: e.Matches}).Error()
}

// NoRepositoryError reports that git finds no repository here, or refuses to use it.
type NoRepositoryError struct {
	GitDir string // git directory that the .git file here names, if that does not exist, as after a move of the repository
	Err    error
}

func (e *NoRepositoryError) Error() string { return e.Err.Error() }

func (e *NoRepositoryError) Unwrap() error { return e.Err }

// NoCurrentDirError reports that the current directory no longer exists, as after the removal of a sandbox.
type NoCurrentDirError struct{ Err error }

func (e *NoCurrentDirError) Error() string { return e.Err.Error() }

func (e *NoCurrentDirError) Unwrap() error { return e.Err }

// GitTooOldError reports a git that is older than the minimum version.
type GitTooOldError struct {
	Version string // version of the git that was found
	Err     error
}

func (e *GitTooOldError) Error() string { return e.Err.Error() }

// RefStorageError reports a repository whose refs are not files, such as one with a reftable.
type RefStorageError struct {
	Format string // value of extensions.refStorage
	Err    error
}

func (e *RefStorageError) Error() string { return e.Err.Error() }

// LockTimeoutError reports that the repository lock was not free in time.
type LockTimeoutError struct {
	Path   string
	Holder string // description of the process that holds it
	Waited time.Duration
	Err    error
}

func (e *LockTimeoutError) Error() string { return e.Err.Error() }

// BusyError reports a sandbox in which processes are still at work.
type BusyError struct {
	ID      string
	Waited  time.Duration
	Holders []string // descriptions of these processes, as far as known
	Err     error
}

func (e *BusyError) Error() string { return e.Err.Error() }

// BrokenError reports an invocation or worktree whose record and tree disagree.
type BrokenError struct {
	Kind        string // "invocation" or "worktree"
	ID          string
	Reason      string // broken_reason of its record
	Detail      string
	Interrupted bool   // the creation was interrupted, and can be undone
	RemovedTree string // path of an adopted worktree that does not exist any more; else empty
	Branch      string // branch that was adopted there; may be empty
	MovedTo     string // path that RemovedTree was moved to; empty if it is not known
	Unlinked    bool   // git's worktree entry of MovedTo names another path
	Registered  bool   // git's worktree entry names RemovedTree
	Locked      bool   // that entry is locked
}

func (e *BrokenError) Error() string {
	return (&fault.BrokenError{Kind: e.Kind, ID: e.ID, Reason: e.Reason, Detail: e.Detail}).Error()
}

// CorruptEntryError reports a corrupt entry in .git/worktrees, which keeps git from working with any worktree.
type CorruptEntryError struct {
	Path string
	What string
}

func (e *CorruptEntryError) Error() string {
	return (&fault.CorruptEntryError{Path: e.Path, What: e.What}).Error()
}

// DamagedError reports a snapshot with missing or corrupt objects.
type DamagedError struct {
	Snapshot     string // name of the snapshot, such as <id>/<n>
	Commit       string
	Objects      int  // number of damaged objects found
	StoppedEarly bool // verification stopped early; there may be more
}

func (e *DamagedError) Error() string {
	what := fmt.Sprintf("%d objects", e.Objects)
	if e.Objects == 1 {
		what = "1 object"
	}
	if e.StoppedEarly {
		what = "at least " + what
	}
	return fmt.Sprintf("snapshot %s (%s) is damaged: %s", e.Snapshot, e.Commit, what)
}

// MovedRepositoryError reports a repository whose records are still those of the path where it was before. Fix with RepoID
// moves them.
type MovedRepositoryError struct {
	From   string // git directory at the former path; empty if it is unknown
	RepoID string // id of the records
}

func (e *MovedRepositoryError) Error() string { return (*fault.MovedRepositoryError)(e).Error() }

// FindingError reports a problem that only a person can repair.
type FindingError struct {
	Code       string // of the finding
	ID         string
	Problem    string
	FixCommand string // command that fixes it
}

func (e *FindingError) Error() string { return fmt.Sprintf("%s (%s): %s", e.ID, e.Code, e.Problem) }

// SettingError reports a setting in git config that is ignored or invalid.
type SettingError struct {
	Key     string
	Value   string
	Origin  string // file or variable that sets it
	Problem string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s = %q (%s): %s", e.Key, e.Value, e.Origin, e.Problem)
}

// ConfinementError reports a path that leads out of a sandbox, or has a reserved name.
type ConfinementError struct {
	Path string
	Why  string
}

func (e *ConfinementError) Error() string { return (*fault.ConfinementError)(e).Error() }

// CannotRunError reports a command that does not exist or cannot be executed.
type CannotRunError struct {
	Program string
	Code    int // exit code that a shell would have: 126 or 127
	Err     error
}

func (e *CannotRunError) Error() string { return fmt.Sprintf("%s: %v", e.Program, e.Err) }

func (e *CannotRunError) Unwrap() error { return e.Err }

// SetupError reports a command that never ran, because its environment could not be set up.
type SetupError struct {
	ID  string
	Err error

	Submitting bool // the submission of the run to its platform failed; 'resume' submits it again
}

func (e *SetupError) Error() string { return (*fault.SetupError)(e).Error() }

func (e *SetupError) Unwrap() error { return e.Err }

// EndedError reports an invocation whose sandbox is gone because it was landed or discarded.
type EndedError struct {
	ID      string
	Landing string // "landed" or "discarded"
	Ref     string // ref that keeps its work; empty for a sandbox over plain directories, whose work is a snapshot
}

func (e *EndedError) Error() string { return (*fault.EndedError)(e).Error() }

// NestedRepositoryError reports a tree that contains repositories, which no commit can hold and which would be lost with
// it.
type NestedRepositoryError struct {
	Dir   string
	Paths []string
}

func (e *NestedRepositoryError) Error() string { return (*fault.NestedRepositoryError)(e).Error() }

// CleanupError reports a clean-up that did not finish after the commit point. The invocation or worktree has ended;
// running the same command again continues the clean-up.
type CleanupError struct {
	Kind string // "invocation" or "worktree"
	ID   string
	Done string // new state, e.g. "discarded"
	Err  error
}

func (e *CleanupError) Error() string { return (*fault.CleanupError)(e).Error() }

func (e *CleanupError) Unwrap() error { return e.Err }

// PreflightError reports checks that failed before an agent was run. Nothing was created.
type PreflightError struct {
	Checks []PreflightCheck // those that failed
	Err    error
}

func (e *PreflightError) Error() string { return e.Err.Error() }

// IsReason reports whether err is a StateError or a RefusedError with one of the reasons.
func IsReason(err error, reasons ...reason.Reason) bool {
	var state *StateError
	var refused *RefusedError
	for _, r := range reasons {
		if errors.As(err, &state) && state.Reason == r || errors.As(err, &refused) && refused.Reason == r {
			return true
		}
	}
	return false
}
