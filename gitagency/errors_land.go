package gitagency

import (
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// Conflict is a path that could not be merged automatically.
type Conflict struct {
	Path   string          `json:"path"`
	Kinds  []string        `json:"kinds"`  // git's names: "contents", "modify/delete", "rename/rename" and so on
	Stages []ConflictStage `json:"stages"` // the stages that exist
}

func newConflict(c fault.Conflict) Conflict {
	return Conflict{Path: c.Path, Kinds: c.Kinds, Stages: convertAll(c.Stages, newConflictStage)}
}

// ConflictStage is one side of a conflict: 1 is the merge base, 2 ours (the sandbox's in a sync), 3 theirs.
type ConflictStage struct {
	Stage int    `json:"stage"`
	Mode  string `json:"mode"`
	OID   string `json:"oid"`
}

func newConflictStage(s fault.ConflictStage) ConflictStage { return ConflictStage(s) }

// ConflictsError reports conflicts between a sandbox and its integration branch. Nothing has changed, unless
// UnfinishedIn names the sandbox that holds the unfinished merge.
type ConflictsError struct {
	ID            string
	Conflicts     []Conflict
	UnfinishedIn  string   // path of the sandbox that holds the unfinished merge; empty if there is none
	StoppedAt     string   // commit of the sandbox at which a rebase stopped; empty for other strategies
	Unlanding     bool     // an unland conflicts with later commits
	RevertArgs    string   // arguments for git revert, if Unlanding
	Branch        string   // branch to revert on, if Unlanding
	Tree          string   // worktree that has this branch checked out; empty where none has
	Directories   bool     // the sandbox is over plain directories, which have changed since it was started
	AlreadyLanded []string // ids that the same command landed earlier
	Worktree      string   // name of the worktree whose branch conflicts with Branch, its parent branch; Tree is its path
	Err           error    // the message
}

func (e *ConflictsError) Error() string { return e.Err.Error() }

// UnresolvedError reports conflicts of a landing that an agent was to resolve and did not. Nothing has landed.
type UnresolvedError struct {
	ID         string
	Agent      string // runner, or program of a run without one; empty if no agent was run
	Reason     string // what the agent did, or why none was run; may contain untrusted text
	NoAgent    bool   // the invocation has no agent, and none was named
	Before     string // name of the snapshot from before the agent; empty if none was run
	Left       string // name of the snapshot of what the agent left; empty if it changed nothing
	RestoreErr error  // reason why the sandbox is not in the state of Before; nil if it is
	Err        error  // a *ConflictsError

	text string
}

func (e *UnresolvedError) Error() string { return e.text }

func (e *UnresolvedError) Unwrap() error { return e.Err }

// UncommittedError reports a sandbox with uncommitted changes.
type UncommittedError struct {
	ID          string
	Path        string    // path of the sandbox
	Files       []string  // relative to the top of the sandbox
	LeftOut     []LeftOut // files that were left out of Files and do not count
	Unadded     []string  // submodules in LeftOut that are committed, at a commit that the index of the sandbox does not have
	TrackedOnly bool      // only changes of tracked files count
	CommitAll   bool      // LandRequest.CommitAll would land them
	Err         error     // the message
}

func (e *UncommittedError) Error() string { return e.Err.Error() }

// LocalChangesError reports local changes of the user in the paths that a landing would write.
type LocalChangesError struct {
	Worktree      string   // path
	Paths         []string // relative to it
	AlreadyLanded bool     // all of them already are as they would land, as after a start with the changes of the worktree
	AsStarted     bool     // all of them are as they would land, or as they were when the sandbox started with them
	Err           error    // the message
}

func (e *LocalChangesError) Error() string { return e.Err.Error() }

// VerifyError reports a landing whose verify command failed or could not be run.
type VerifyError struct {
	ID       string
	Command  string
	ExitCode int // exit status of the command; 0 if it did not run
	TimedOut bool
	After    time.Duration // run time of the command
	Limit    time.Duration // timeout of the sandbox; 0 where the operation timeout is shorter
	Log      string        // path of the command's output; empty if there was none, or it could not be kept
	Err      error         // reason why the command did not run or could not be awaited; nil if it ran
	Result   ExecResult    // further results of the command, if it ran
	Merge    string        // remote branch, as <remote>/<branch>, whose merge was verified; empty if a landing was

	text string
}

func (e *VerifyError) Error() string { return e.text }

func (e *VerifyError) Unwrap() error { return e.Err }

// NotPushedError reports an integration branch that could not be pushed. Earlier landings on it stand.
type NotPushedError struct {
	Branch         string
	Remote         string     // name of the remote
	RemoteBranch   string     // name of the branch on the remote
	Address        string     // remote as git finds it from any worktree: its name or a path
	IDs            []string   // ids of the landed invocations
	Tries          int        // number of push attempts
	Tree           string     // worktree that has the branch checked out; empty where none has, or it is unknown
	Conflicts      []Conflict // conflicts of the branch with commits on the remote
	OutcomeUnknown bool       // the push was interrupted and may have succeeded
	Err            error      // nil if there are Conflicts

	text string
}

func (e *NotPushedError) Error() string { return e.text }

func (e *NotPushedError) Unwrap() error { return e.Err }

// NoLongerLandedError reports work that has landed and is no longer on the integration branch.
type NoLongerLandedError struct {
	ID            string
	Commit        string // commit of the landing
	Branch        string
	UnlandedBy    string // commit of the unland; empty where it was not undone by unland
	Reverted      bool   // the branch contains the landing, but later commits undid all of its changes
	RestoreArgs   string // git arguments that restore the work; empty where merging RestoreCommit does
	Ref           string // trash ref with the sandbox's commits; empty if it was pruned
	RestoreCommit string // revision to merge to restore the work: Ref, or the landed commit where Ref holds more than had landed
	Tree          string // worktree that has the branch checked out; empty where none has
	Err           error  // the message
}

func (e *NoLongerLandedError) Error() string { return e.Err.Error() }
