// Package reason lists the reasons of gitagency.StateError and gitagency.RefusedError, for programs that react to them.
// The comment of each reason says which fields of the error are set.
package reason

// Reason is the reason of a gitagency.StateError or gitagency.RefusedError.
type Reason string

// State: this machine, its git and the user's configuration.
const (
	Unsupported Reason = "unsupported"  // Name is a primitive whose value, Other, cannot be built here
	Limit       Reason = "limit"        // this machine cannot enforce a limit
	OpenFiles   Reason = "open-files"   // the limit of open files is too low for any command
	NoFreeID    Reason = "no-free-id"   // every generated id was taken
	NoIdentity  Reason = "no-identity"  // git has no name and email for the author of a commit
	InvalidDate Reason = "invalid-date" // git cannot parse the date in the variable Name; Other is its value
	Output      Reason = "output"       // the output of a command could not be passed on
	Timeout     Reason = "timeout"      // the operation Name took longer than agency.operationTimeout, and was undone
	TooLarge    Reason = "too-large"    // the result is too large to hold in memory
	ReadLimit   Reason = "read-limit"   // data of a sandbox exceeds the limit Name of agency.readLimits, which is Other; ID is the sandbox, if known
	BehindWalls Reason = "behind-walls" // called from behind the walls of sandbox ID
)

// State: the repository and its records.
const (
	CorruptRecord  Reason = "corrupt-record"    // Path cannot be parsed
	GitLocked      Reason = "git-locked"        // git is writing Path, or has left its lock there
	MissingObject  Reason = "missing-object"    // the object Name is missing or has the wrong type
	MissingHead    Reason = "missing-head"      // HEAD of a sandbox leads to a missing commit; Branch is the checked-out branch, if any, and Commit the missing one, if known
	NoCommit       Reason = "no-commit"         // Name does not name a commit
	UnbornBranch   Reason = "unborn-branch"     // the branch Name has no commits yet
	MissingBranch  Reason = "missing-branch"    // Branch does not exist any more; Other is its new name, if known; ID the sandbox that lands there, which has its Commit, or Name the worktree whose branch it is, or Operation is the git command, with the arguments Others[0], that does the same on another branch, and Path the tree of the worktree that was to be finished
	BranchInTheWay Reason = "branch-in-the-way" // the branch Name keeps git from creating branches Name/...
	Unrelated      Reason = "unrelated"         // the commits Commit (ours) and Other (theirs) have no common history
	SubmoduleKept  Reason = "submodule-kept"    // sandbox ID has the submodule Path at Commit, which only git-agency keeps, in the repository Other; Others[0] is the integration tree, or empty
	SubmoduleGone  Reason = "submodule-gone"    // sandbox ID has the submodule Path at Commit, which the repository Other of the submodule lacks; Others as above
	SubmoduleNoGit Reason = "submodule-no-git"  // sandbox ID has the submodule Path at Commit, and the submodule is not initialised; Others as above
	SubmoduleNew   Reason = "submodule-new"     // sandbox ID adds the submodule Path with the URL Name, and has no repository Other yet; Others as above
	UnnamedGitlink Reason = "unnamed-gitlink"   // sandbox ID, or the integration worktree Name with the tree Other, adds the repository Path without an entry in .gitmodules
)

// State: files and directories that are read, created or replaced.
const (
	InRepository Reason = "in-repository" // the directory Path belongs to a repository
	NotEmpty     Reason = "not-empty"     // the directory Path is not empty
	Unreadable   Reason = "unreadable"    // Path cannot be read, so no snapshot could hold it
	Changing     Reason = "changing"      // the files Others below Path keep changing
	Obstructed   Reason = "obstructed"    // Path is in the way of a rollback, and no snapshot can hold it
)

// State: remotes.
const (
	Upstream     Reason = "upstream"      // Branch has an upstream of another name, Name, on the remote Other
	NoRemote     Reason = "no-remote"     // there is no remote Name; Others are the remotes that exist
	PushRejected Reason = "push-rejected" // the remote rejected the push
	PushRace     Reason = "push-race"     // the remote received other pushes before each attempt
)

// State: integration worktrees.
const (
	OtherModules  Reason = "other-modules"  // invocation ID has repositories of submodules, Others, that are kept nowhere else
	NoParent      Reason = "no-parent"      // worktree Name, with Branch, was not created from a branch
	NotInSandbox  Reason = "not-in-sandbox" // Path is in no sandbox
	NotInside     Reason = "not-inside"     // this process does not run in a sandbox
	SandboxBranch Reason = "sandbox-branch" // Path has Branch checked out, which is the branch of a sandbox
	NotWorktree   Reason = "not-worktree"   // Path is in no worktree of the repository; Other, if any, is the worktree around it that was moved without git
	NameTaken     Reason = "name-taken"     // worktree ID has the name Name already
	Adopted       Reason = "adopted"        // Path is the integration worktree Name already
	Archived      Reason = "archived"       // worktree ID, called Name, is archived; Branch is its branch; Other the invocation that was to land there; Others[0], if any, the usable worktree of the branch that it lands on
	Dirty         Reason = "dirty"          // Path has uncommitted or untracked files; Other is gitagency.Finishing if it keeps the worktree from being finished
	ModifiedTree  Reason = "modified-tree"  // Path was changed although its creation never finished
	LiveSandboxes Reason = "live-sandboxes" // worktree Name still has the sandboxes Others; Other is gitagency.Finishing if it keeps the worktree from being finished
	NoBranch      Reason = "no-branch"      // worktree Name at Path has a detached HEAD
	WorktreeBusy  Reason = "worktree-busy"  // Operation is in progress in the worktree Path
)

// State: sandboxes.
const (
	NotImported          Reason = "not-imported"          // git state behind the walls of sandbox ID cannot be imported
	Running              Reason = "running"               // commands run in sandbox ID; Others describes them, as far as known
	NoRun                Reason = "no-run"                // no agent was run in sandbox ID
	RunEnded             Reason = "run-ended"             // the run of sandbox ID has ended; Name is its status
	RunForeground        Reason = "run-foreground"        // the agent of sandbox ID is connected with the terminal that it was started on
	RunDropped           Reason = "run-dropped"           // the connection with the agent of sandbox ID was lost, and the run goes on
	NoQuestion           Reason = "no-question"           // the agent of sandbox ID asks no question
	Unanswered           Reason = "unanswered"            // the agent of sandbox ID waits for an answer; Others are the options that it offers
	NotWaiting           Reason = "not-waiting"           // the agent of sandbox ID runs, and does not wait for an answer
	OtherQuestion        Reason = "other-question"        // the agent of sandbox ID asks another question than the answered one
	SetupFailed          Reason = "setup-failed"          // agency.setup, the command Name, failed in sandbox ID; Path is its output, if that was kept
	NothingRuns          Reason = "nothing-runs"          // no command runs in sandbox ID
	SharedNetwork        Reason = "shared-network"        // sandbox ID has the network of this machine
	PortTaken            Reason = "port-taken"            // the port for port Name of the sandbox is in use
	Inside               Reason = "inside"                // a command inside sandbox Other cannot end sandbox ID
	Moved                Reason = "moved"                 // the tree of sandbox ID was moved from Path to Other
	UnfinishedTransition Reason = "unfinished-transition" // a rollback or sync of sandbox ID stopped half-way; the snapshot Name is the state before
	LostRollback         Reason = "lost-rollback"         // an interrupted rollback or sync of sandbox ID cannot be finished
	OffBranch            Reason = "off-branch"            // HEAD of sandbox ID is not on its branch, Branch
	UntrackedInTheWay    Reason = "untracked-in-the-way"  // the untracked files Others in sandbox ID, at Path, are in the way of a merge
	OperationInProgress  Reason = "operation-in-progress" // Operation is in progress in sandbox ID; Path is set if it was begun outside the walls
	OperationUnstaged    Reason = "operation-unstaged"    // as OperationInProgress, for a merge of which nothing is staged
	MergedOutside        Reason = "merged-outside"        // as OperationInProgress, for a merge of a sync; the branch of the sandbox has the merged commit
	CommittedOutside     Reason = "committed-outside"     // as OperationInProgress, for a merge of a sync; Commit was made outside of the walls since, and is no merge
	TrashTooLarge        Reason = "trash-too-large"       // files that no commit can hold are larger than agency.trashLimit; Path is the largest, Name a sufficient limit
	TrashUnreadable      Reason = "trash-unreadable"      // neither a commit nor an archive can hold Path
	NotEnded             Reason = "not-ended"             // invocation ID still has its sandbox
	TrashGone            Reason = "trash-gone"            // Path, the trash ref or archive of invocation ID, does not exist; Name is the ref if only the archive is gone
	UnfinishedDiscard    Reason = "unfinished-discard"    // the discard of invocation ID was interrupted
)

// State: review and landing.
const (
	NotSubmitted    Reason = "not-submitted"     // sandbox ID has to be submitted for review first
	NotInReview     Reason = "not-in-review"     // sandbox ID is in the landing state Name
	BaseMoved       Reason = "base-moved"        // Branch, at Commit, has commits that sandbox ID lacks
	HeadLacksBranch Reason = "head-lacks-branch" // HEAD of sandbox ID lacks commits of its branch, Branch
	NothingToLand   Reason = "nothing-to-land"   // sandbox ID has no commits of its own
	NoNetChange     Reason = "no-net-change"     // the commits of sandbox ID together change nothing
	NotLanded       Reason = "not-landed"        // sandbox ID has no landing to take back; Other is the landed invocation that it was restored from, or empty
	StuckLanding    Reason = "stuck-landing"     // an interrupted landing of sandbox ID can be neither finished nor undone; Path describes it
	KeepsMoving     Reason = "keeps-moving"      // Branch or sandbox ID moved during every attempt
	Temporary       Reason = "temporary"         // sandbox ID exists only to verify the landing of Other
)

// Refused: the request would break an invariant.
const (
	NotIntegration    Reason = "not-integration"    // Path is not in an integration worktree
	NoWorktree        Reason = "no-worktree"        // Path is in no worktree of git, as in a bare repository, and so in no integration worktree
	MarkerLost        Reason = "marker-lost"        // the integration worktree Name at Path has no marker
	IsSandbox         Reason = "is-sandbox"         // Path is a sandbox
	NotSandbox        Reason = "not-sandbox"        // Path has no sandbox marker
	MarkedIntegration Reason = "marked-integration" // Path has the marker of an integration worktree
	Overlap           Reason = "overlap"            // Path would equal, contain or lie inside another tree, Other
	UnsafePath        Reason = "unsafe-path"        // Path cannot be resolved or used safely
	TrackedMarker     Reason = "tracked-marker"     // Commit contains .agency
	InvalidObject     Reason = "invalid-object"     // the tree entry Path or the commit Commit of a sandbox is malformed
	AllowInside       Reason = "allow-inside"       // a command inside sandbox Other cannot widen the walls of sandbox ID
	Grant             Reason = "grant"              // Path cannot be allowed to sandbox ID with the flag Name; Other is what to do, or empty
	InvalidWork       Reason = "invalid-work"       // as InvalidObject, in the work of sandbox ID, or of the integration worktree Name with the tree Other; Commit is one that can land, Path the offending path
)

// Refused: the request would run code that an agent may have written.
const (
	UntrustedFilter Reason = "untrusted-filter" // the filter Name is configured where an agent can write, in the file Other if known; Path is the file to convert
	UntrustedRemote Reason = "untrusted-remote" // a push to the remote Name, at the URL Other, would run the hooks Others, which an agent may have configured
)
