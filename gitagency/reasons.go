package gitagency

// Reason tells programs why a StateError or RefusedError happened.
type Reason string

// Reasons of a StateError: the state of the repository, a worktree or a sandbox does not allow the request.
const (
	// records, git and this machine
	ReasonCorruptRecord  Reason = "corrupt-record"    // Path cannot be parsed
	ReasonUnsupported    Reason = "unsupported"       // Name is a primitive whose value, Other, cannot be built here
	ReasonLimit          Reason = "limit"             // this machine cannot enforce a limit
	ReasonNoFreeID       Reason = "no-free-id"        // every generated id was taken
	ReasonNoIdentity     Reason = "no-identity"       // git has no name and email for the author of a commit
	ReasonInvalidDate    Reason = "invalid-date"      // git cannot parse the date in the variable Name; Other is its value
	ReasonOutput         Reason = "output"            // the output of a command could not be passed on
	ReasonTimeout        Reason = "timeout"           // the operation Name took longer than agency.operationTimeout, and was undone
	ReasonTooLarge       Reason = "too-large"         // the result is too large to hold in memory
	ReasonBehindWalls    Reason = "behind-walls"      // called from behind the walls of sandbox ID
	ReasonInRepository   Reason = "in-repository"     // the directory Path belongs to a repository
	ReasonMissingObject  Reason = "missing-object"    // the object Name is missing or has the wrong type
	ReasonUnnamedGitlink Reason = "unnamed-gitlink"   // sandbox ID adds the repository Path without an entry in .gitmodules
	ReasonUnrelated      Reason = "unrelated"         // the commits Commit (ours) and Other (theirs) have no common history
	ReasonNotEmpty       Reason = "not-empty"         // the directory Path is not empty
	ReasonNoCommit       Reason = "no-commit"         // Name does not name a commit
	ReasonUnbornBranch   Reason = "unborn-branch"     // the branch Name has no commits yet
	ReasonBranchInTheWay Reason = "branch-in-the-way" // the branch Name keeps git from creating branches Name/...
	ReasonGitLocked      Reason = "git-locked"        // git is writing Path, or has left its lock there
	ReasonUnreadable     Reason = "unreadable"        // Path cannot be read, so no snapshot could hold it
	ReasonChanging       Reason = "changing"          // the files Others below Path keep changing
	ReasonObstructed     Reason = "obstructed"        // Path is in the way of a rollback, and no snapshot can hold it
	ReasonMissingHead    Reason = "missing-head"      // HEAD of a sandbox leads to a missing commit; Branch is the checked-out branch, if any, and Commit the missing one, if known
	ReasonUpstream       Reason = "upstream"          // Branch has an upstream of another name, Name, on the remote Other
	ReasonNoRemote       Reason = "no-remote"         // there is no remote Name; Others are the remotes that exist
	ReasonPushRejected   Reason = "push-rejected"     // the remote rejected the push
	ReasonPushRace       Reason = "push-race"         // the remote received other pushes before each attempt

	// integration worktrees
	ReasonNotWorktree   Reason = "not-worktree"   // Path is in no worktree of the repository
	ReasonNameTaken     Reason = "name-taken"     // worktree ID has the name Name already
	ReasonAdopted       Reason = "adopted"        // Path is the integration worktree Name already
	ReasonArchived      Reason = "archived"       // worktree ID, called Name, is archived; Branch is its branch; Other the invocation that was to land there
	ReasonDirty         Reason = "dirty"          // Path has uncommitted or untracked files
	ReasonModifiedTree  Reason = "modified-tree"  // Path was changed although its creation never finished
	ReasonLiveSandboxes Reason = "live-sandboxes" // worktree Name still has the sandboxes Others
	ReasonNoBranch      Reason = "no-branch"      // worktree Name at Path has a detached HEAD
	ReasonWorktreeBusy  Reason = "worktree-busy"  // Operation is in progress in the worktree Path

	// sandboxes
	ReasonRunning              Reason = "running"               // commands run in sandbox ID; Others describes them, as far as known
	ReasonNothingRuns          Reason = "nothing-runs"          // no command runs in sandbox ID
	ReasonSharedNetwork        Reason = "shared-network"        // sandbox ID has the network of this machine
	ReasonPortTaken            Reason = "port-taken"            // the port for port Name of the sandbox is in use
	ReasonInside               Reason = "inside"                // a command inside sandbox Other cannot end sandbox ID
	ReasonMoved                Reason = "moved"                 // the tree of sandbox ID was moved from Path to Other
	ReasonUnfinishedTransition Reason = "unfinished-transition" // a rollback or sync of sandbox ID stopped half-way; the snapshot Name is the state before
	ReasonLostRollback         Reason = "lost-rollback"         // an interrupted rollback or sync of sandbox ID cannot be finished
	ReasonOffBranch            Reason = "off-branch"            // HEAD of sandbox ID is not on its branch, Branch
	ReasonUntrackedInTheWay    Reason = "untracked-in-the-way"  // the untracked files Others in sandbox ID, at Path, are in the way of a merge
	ReasonOperationInProgress  Reason = "operation-in-progress" // Operation is in progress in sandbox ID; Path is set if it was begun outside the walls
	ReasonOperationUnstaged    Reason = "operation-unstaged"    // as ReasonOperationInProgress, for a merge of which nothing is staged

	// review and landing
	ReasonNotSubmitted    Reason = "not-submitted"     // sandbox ID has to be submitted for review first
	ReasonNotInReview     Reason = "not-in-review"     // sandbox ID is in the landing state Name
	ReasonBaseMoved       Reason = "base-moved"        // Branch, at Commit, has commits that sandbox ID lacks
	ReasonHeadLacksBranch Reason = "head-lacks-branch" // HEAD of sandbox ID lacks commits of its branch, Branch
	ReasonNothingToLand   Reason = "nothing-to-land"   // sandbox ID has no commits of its own
	ReasonNoNetChange     Reason = "no-net-change"     // the commits of sandbox ID together change nothing
	ReasonNotLanded       Reason = "not-landed"        // sandbox ID has no landing to take back
	ReasonStuckLanding    Reason = "stuck-landing"     // an interrupted landing of sandbox ID can be neither finished nor undone; Path describes it
	ReasonKeepsMoving     Reason = "keeps-moving"      // Branch or sandbox ID moved during every attempt
	ReasonTemporary       Reason = "temporary"         // sandbox ID exists only to verify the landing of Other
)

// Reasons of a RefusedError: the request would break an invariant or run code that an agent may have written.
const (
	ReasonNotIntegration    Reason = "not-integration"    // Path is not in an integration worktree
	ReasonMarkerLost        Reason = "marker-lost"        // the integration worktree Name at Path has no marker
	ReasonIsSandbox         Reason = "is-sandbox"         // Path is a sandbox
	ReasonNotSandbox        Reason = "not-sandbox"        // Path has no sandbox marker
	ReasonMarkedIntegration Reason = "marked-integration" // Path has the marker of an integration worktree
	ReasonOverlap           Reason = "overlap"            // Path would equal, contain or lie inside another tree, Other
	ReasonUnsafePath        Reason = "unsafe-path"        // Path cannot be resolved or used safely
	ReasonTrackedMarker     Reason = "tracked-marker"     // Commit contains .agency
	ReasonInvalidObject     Reason = "invalid-object"     // the tree entry Path or the commit Commit of a sandbox is malformed
	ReasonInvalidWork       Reason = "invalid-work"       // as ReasonInvalidObject, in the work of sandbox ID; Commit is one that can land, Path the offending path
	ReasonUntrustedFilter   Reason = "untrusted-filter"   // the filter Name is configured where an agent can write, in the file Other if known; Path is the file to convert
	ReasonUntrustedRemote   Reason = "untrusted-remote"   // a push to the remote Name, at the URL Other, would run the hooks Others, which an agent may have configured
)
