package gitagency

import (
	"context"
	"io"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/resolve"
)

// LandRequest says which sandbox to land, and how. The zero value of every field but ID is a good default.
type LandRequest struct {
	ID            string   // required: invocation id or unique prefix of it
	Strategy      string   // one of Strategies; empty: agency.land.strategy, else merge
	CommitAll     bool     // commit uncommitted work first, with Message
	Leave         bool     // land what is committed, and leave uncommitted work in the trash; not with CommitAll
	Message       string   // message of the CommitAll commit, else of the merge or squash commit (not for rebase); empty: generated
	RequireBase   bool     // refuse if the integration branch has commits that the sandbox lacks
	DryRun        bool     // run the same checks with the same errors, but change nothing
	DeferCleanup  bool     // leave the removal of the sandbox's tree to a second Land of the same id, if agency.autoDetach allows
	CleanupLock   *os.File // CleanupLock of an earlier result, which then serves for this one too; may be nil
	AlreadyLanded []string // ids that the same command landed earlier; errors quote them

	// Verify is a shell command that must succeed on the tree that would land. It runs in a temporary sandbox with the walls
	// and limits of the landed sandbox. Empty means agency.verify; NoVerify turns verification off.
	Verify   string
	NoVerify bool
	Output   io.Writer       // receives the output of Verify; may be nil
	Force    <-chan struct{} // once closed, ends the grace period of the Verify command, or of an agent, as in ExecOptions

	Resolve *ResolveRequest // agent that resolves conflicts; nil: none does; not with DryRun
}

func (req LandRequest) internal() landing.Request {
	return landing.Request{
		ID: req.ID, Strategy: req.Strategy, CommitAll: req.CommitAll, Leave: req.Leave, Message: req.Message, RequireBase: req.RequireBase,
		DryRun: req.DryRun, DeferCleanup: req.DeferCleanup, CleanupLock: req.CleanupLock, AlreadyLanded: req.AlreadyLanded,
		Verify: req.Verify, NoVerify: req.NoVerify, Output: req.Output, Force: req.Force,
	}
}

// LandResult is the result of Land.
type LandResult struct {
	Invocation      string              `json:"invocation_id"`
	Commit          string              `json:"commit"`    // new commit of the integration branch; if it had landed before, the commit of that landing
	Before          string              `json:"before"`    // commit of the integration branch before the landing
	Branch          string              `json:"branch"`    // branch of the integration worktree
	Strategy        string              `json:"strategy"`  // strategy used; empty if nothing had to be merged
	Tip             string              `json:"tip"`       // last commit of the sandbox
	Commits         int                 `json:"commits"`   // commits of the sandbox that landed; for a rebase, the commits created
	TrashRef        string              `json:"trash_ref"` // ref that keeps the sandbox's own commits until prune
	Already         bool                `json:"already"`   // it had landed before, or the branch had all of its commits
	DryRun          bool                `json:"dry_run"`   // nothing was changed
	LeftOut         []LeftOut           `json:"left_out"`  // files of the sandbox that are in none of its commits
	TrashArchive    string              `json:"-"`         // archive that keeps those which no commit can hold; empty when there is none
	MessageUnused   bool                `json:"-"`         // CommitAll was set, but there was nothing to commit
	Outdated        []OutdatedSubmodule `json:"-"`         // submodules in the worktree of the branch that are not at the commits that landed
	CleanupDeferred bool                `json:"-"`         // the sandbox's tree was renamed but not removed; another Land of the id removes it
	CleanupLock     *os.File            `json:"-"`         // with CleanupDeferred: as long as it is open, here or in a process that inherited it, doctor and prune take the removal for under way

	Files []string `json:"files,omitempty"` // files that changed, of a sandbox over plain directories: "<path as given>/<file>"

	Verified  bool   `json:"verified"`   // the verify command succeeded on this tree
	VerifyLog string `json:"verify_log"` // path of the log of the verify command; empty if there is none
}

func newLandResult(r landing.Result) LandResult {
	return LandResult{
		Invocation: r.Invocation, Files: r.Files, Commit: r.Commit, Before: r.Before, Branch: r.Branch, Strategy: r.Strategy, Tip: r.Tip,
		Commits: r.Commits, TrashRef: r.TrashRef, Already: r.Already, DryRun: r.DryRun, LeftOut: convertAll(r.LeftOut, newLeftOut), TrashArchive: r.TrashArchive,
		MessageUnused: r.MessageUnused, Outdated: convertAll(r.Outdated, newOutdatedSubmodule), CleanupDeferred: r.CleanupDeferred, CleanupLock: r.CleanupLock, Verified: r.Verified, VerifyLog: r.VerifyLog,
	}
}

// OutdatedSubmodule is a submodule in a worktree that is at another commit than the index of the worktree has for it, or
// whose files are not checked out.
type OutdatedSubmodule struct {
	Tree   string // worktree
	Path   string // path of the submodule in it
	Commit string // commit in the index
	Source string // repository from which the submodule has to fetch the commit first; empty: it has the commit
	Empty  bool   // HEAD is at the commit, but no file is checked out, as after "git clone --no-checkout"
}

func newOutdatedSubmodule(o landing.OutdatedSubmodule) OutdatedSubmodule { return OutdatedSubmodule(o) }

// IsNew reports whether this call landed the work, and not an earlier one.
func (l LandResult) IsNew() bool { return l.Commit != "" && !l.Already && !l.DryRun }

// Land merges the work of a sandbox into the integration branch and updates the worktree that has the branch checked out,
// all or nothing. Then it removes the sandbox; a ref keeps the sandbox's commits unchanged.
//
// Nothing is changed if the error is an *UncommittedError, *ConflictsError, *LocalChangesError or *VerifyError, or a
// *StateError with reason.NothingToLand, reason.NoNetChange, reason.BaseMoved, reason.NotSubmitted, reason.KeepsMoving,
// reason.WorktreeBusy, reason.OperationInProgress or reason.OperationUnstaged. The next command that takes the
// repository lock finishes or undoes a landing that was killed. A result returned with an error has the fields known so
// far, and a Commit only if the work has landed.
//
// With req.Resolve, an agent resolves conflicts in the sandbox, in a merge of the integration branch, and the work is landed
// again. Conflicts that it does not resolve are an *UnresolvedError and a *ConflictsError, and the sandbox is as before. After
// any other error of the second landing, the sandbox has the resolution.
func (r *Repository) Land(ctx context.Context, req LandRequest) (LandResult, error) {
	if r.IsPaths() {
		return r.landPaths(ctx, req)
	}
	result, err := resolve.Land(ctx, r.core, req.internal(), req.Resolve.internal())
	if err == nil && !result.DryRun {
		r.platforms.Forget(ctx, result.Invocation)
	}
	return newLandResult(result), publicError(err)
}

// LandReadyResult is the result for one invocation of LandReady.
type LandReadyResult struct {
	LandResult
	Name string // name of the invocation
	Err  error  // nil if it has landed
}

func newLandReadyResult(r landing.ReadyResult) LandReadyResult {
	return LandReadyResult{LandResult: newLandResult(r.Result), Name: r.Name, Err: publicError(r.Err)}
}

// LandReady lands every submitted invocation of an integration worktree, in the order of submission, and continues past
// those that cannot land. It sets req.ID itself; the rest of req applies to each. An empty worktree means the one that
// contains the current directory. The error is about the queue as a whole; the result of each invocation holds its own.
func (r *Repository) LandReady(ctx context.Context, worktree string, req LandRequest) ([]LandReadyResult, error) {
	r.refreshAllJobs()
	land := func(ctx context.Context, repo *core.Repository, each landing.Request) (landing.Result, error) {
		result, err := resolve.Land(ctx, repo, each, req.Resolve.internal())
		if err == nil && !result.DryRun {
			r.platforms.Forget(ctx, result.Invocation)
		}
		return result, err
	}
	results, err := landing.Ready(ctx, r.core, worktree, req.internal(), land)
	return convertAll(results, newLandReadyResult), publicError(err)
}

// UnlandRequest says which landing to revert.
type UnlandRequest struct {
	ID     string // required: invocation id or unique prefix of it
	DryRun bool   // run the same checks with the same errors, but change nothing
}

// UnlandResult is the result of Unland.
type UnlandResult struct {
	Invocation string `json:"invocation_id"`
	Commit     string `json:"commit"`    // new commit of the integration branch
	Before     string `json:"before"`    // commit of the integration branch before
	Branch     string `json:"branch"`    // branch of the integration worktree
	Landed     string `json:"landed"`    // commit of the reverted landing
	TrashRef   string `json:"trash_ref"` // ref that keeps the sandbox's own commits until prune
	Already    bool   `json:"already"`   // it was reverted before
	DryRun     bool   `json:"dry_run"`   // nothing was changed
}

// Unland reverts a landing with a commit on top of the integration branch that undoes its changes and nothing later. It
// gives the guarantees of Land. Later changes to the same lines are a *ConflictsError.
func (r *Repository) Unland(ctx context.Context, req UnlandRequest) (UnlandResult, error) {
	result, err := landing.Unland(ctx, r.core, landing.UnlandRequest(req))
	return UnlandResult(result), publicError(err)
}
