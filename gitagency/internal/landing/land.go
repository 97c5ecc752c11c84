// Package landing brings the work of a sandbox to the integration branch: review, verification, merge, publication, push
// and unland. A landing happens as a whole or not at all; Recover finishes or undoes one that was killed.
// It must never change a branch or a file of the user before every refusal is checked.
package landing

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Request says which sandbox to land, and how. The zero value of every field but ID is a good default.
type Request struct {
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
	Force    <-chan struct{} // once closed, ends the grace period of the Verify command, as in ExecOptions
}

// Result is the result of Land.
type Result struct {
	Invocation      string              `json:"invocation_id"`
	Files           []string            `json:"files,omitempty"` // as in gitagency.LandResult; a landing on a branch has none
	Commit          string              `json:"commit"`          // new commit of the integration branch; if it had landed before, the commit of that landing
	Before          string              `json:"before"`          // commit of the integration branch before the landing
	Branch          string              `json:"branch"`          // branch of the integration worktree
	Strategy        string              `json:"strategy"`        // strategy used; empty if nothing had to be merged
	Tip             string              `json:"tip"`             // last commit of the sandbox
	Commits         int                 `json:"commits"`         // commits of the sandbox that landed; for a rebase, the commits created
	TrashRef        string              `json:"trash_ref"`       // ref that keeps the sandbox's own commits until prune
	Already         bool                `json:"already"`         // it had landed before, or the branch had all of its commits
	DryRun          bool                `json:"dry_run"`         // nothing was changed
	LeftOut         []snapshots.LeftOut `json:"left_out"`        // files of the sandbox that are in none of its commits
	TrashArchive    string              `json:"-"`               // archive that keeps those which no commit can hold; empty when there is none
	MessageUnused   bool                `json:"-"`               // CommitAll was set, but there was nothing to commit
	Outdated        []OutdatedSubmodule `json:"-"`               // submodules in the worktree of the branch that are not at the commits that landed
	CleanupDeferred bool                `json:"-"`               // the sandbox's tree was renamed but not removed; another Land of the id removes it
	CleanupLock     *os.File            `json:"-"`               // with CleanupDeferred: as long as it is open, here or in a process that inherited it, doctor and prune take the removal for under way

	Verified  bool   `json:"verified"`   // the verify command succeeded on this tree
	VerifyLog string `json:"verify_log"` // path of the log of the verify command; empty if there is none
}

// OutdatedSubmodule is a submodule that a landing leaves at its old commit.
type OutdatedSubmodule = submodule.Outdated

// IsNew reports whether this call landed the work, and not an earlier one.
func (l Result) IsNew() bool { return l.Commit != "" && !l.Already && !l.DryRun }

// Land merges the work of a sandbox into the integration branch and updates the worktree that has the branch checked out,
// all or nothing. Then it removes the sandbox; a ref keeps the sandbox's commits unchanged.
//
// Nothing is changed if the error is an *UncommittedError, *NothingToLandError, *ConflictsError, *LocalChangesError,
// *BaseMovedError, *NotSubmittedError, *VerifyError, *KeepsMovingError, or reports a git operation in progress. The next
// command that takes the repository lock finishes or undoes a landing that was killed. A result returned with an error
// has the fields known so far, and a Commit only if the work has landed.
func Land(ctx context.Context, r *core.Repository, req Request) (Result, error) {
	if err := req.normalize(r); err != nil {
		return Result{}, err
	}
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return Result{}, err
	}
	req.ID = inv.ID
	job := &landJob{req: req, partial: Result{Invocation: inv.ID, Strategy: req.Strategy, DryRun: req.DryRun, LeftOut: []snapshots.LeftOut{}}}
	if inv.Landing == store.Landed && !inv.Broken && !req.DryRun { // needs no repository lock, and may take long
		if err := discard.RemoveEndedTree(ctx, r, inv.ID); err != nil {
			return job.partial, err
		}
	}
	sandbox.Of(r, inv.ID).ImportUnlocked(ctx)
	landed, err := verifyAndLand(ctx, r, job)
	fault.SetAlreadyLanded(err, req.AlreadyLanded)
	if err != nil && !fault.Is[*fault.EndedError](err) && !fault.Is[*fault.CleanupError](err) {
		return job.partial, &fault.InvocationError{Operation: "land", ID: req.ID, Err: err}
	}
	if err != nil && landed.Invocation == "" {
		landed = job.partial
	}
	return landed, err
}

// landJob is one call of Land over all of its attempts.
type landJob struct {
	req     Request
	partial Result // result returned with an error: the fields known so far
	retries int    // attempts that started over because the branch or the sandbox moved
}

// landOutcome is the outcome of one attempt without an error: the work has landed, or it must be verified first.
type landOutcome struct {
	landed      Result
	needsVerify *candidate // commit to verify before it may land; nil if the work has landed
	branch      string     // target branch, with needsVerify
}

// normalize fills in the defaults from the configuration, and refuses invalid values.
func (req *Request) normalize(r *core.Repository) error {
	if _, err := r.Settings.TrashLimit(); err != nil { // a landing may write an archive
		return err
	}
	if req.Strategy == "" {
		strategy, err := r.Settings.Strategy()
		if err != nil {
			return err
		}
		req.Strategy = strategy
	}
	if err := settings.CheckStrategy(req.Strategy); err != nil {
		return err
	}
	for _, check := range []func() ([]string, error){r.Settings.LandingTrailers, r.Settings.SecretPatterns, r.Settings.LeavePatterns} { // used later
		if _, err := check(); err != nil {
			return err
		}
	}
	for _, check := range []func() (time.Duration, error){r.Settings.LockTimeout, r.Settings.OperationTimeout} { // used later
		if _, err := check(); err != nil {
			return err
		}
	}
	if req.DeferCleanup {
		mayDefer, err := r.Settings.DefersCleanup()
		if err != nil {
			return err
		}
		req.DeferCleanup = mayDefer
	}
	given := req.Message != ""
	switch req.Message = strings.TrimSpace(req.Message); {
	case req.Message != "":
	case req.CommitAll:
		return &fault.InvalidError{What: "message", Want: "a message for the commit of the uncommitted changes"}
	case given:
		return &fault.InvalidError{What: "message", Want: "a message for the commit of the landing"}
	}
	if !utf8.ValidString(req.Message) || strings.Contains(req.Message, "\x00") {
		return &fault.InvalidError{What: "message", Value: req.Message, Want: "UTF-8 text without NUL"}
	}
	if req.Message != "" && !req.CommitAll && req.Strategy == settings.RebaseStrategy {
		return &fault.InvalidError{What: "message", Value: req.Message, Want: "no message: a rebase keeps the messages of the sandbox's commits"}
	}
	return req.normalizeVerify(r)
}

// normalizeVerify fills in the verify command from the configuration, and refuses an invalid one.
func (req *Request) normalizeVerify(r *core.Repository) error {
	if err := settings.CheckCommand(req.Verify); err != nil {
		return err
	}
	switch {
	case strings.Contains(req.Verify, "\x00"):
		return &fault.InvalidError{What: "command", Value: req.Verify, Want: "a shell command without NUL"}
	case req.NoVerify:
		req.Verify = ""
	case req.Verify == "":
		line, err := verifyCommand(r)
		if err != nil {
			return err
		}
		req.Verify = line
	}
	return nil
}

// landLocked lands the work of a job, or stops before the branch moves if the commit has to be verified first. It starts
// over while other processes move the branch or the sandbox. verifiedTree has been verified already; empty if none has.
// The caller holds the repository lock.
func landLocked(ctx context.Context, r *core.Repository, repo *git.Repo, job *landJob, verifiedTree string) (landOutcome, error) {
	entry, done, err := landingEntry(ctx, r, repo, job.req)
	if err != nil || done != nil {
		return landOutcome{landed: *cmp.Or(done, &Result{})}, err
	}
	ctx, cancel, err := r.Settings.WithOperationTimeout(ctx, "landing")
	if err != nil {
		return landOutcome{}, err
	}
	defer cancel()
	for {
		l := &landAttempt{r: r, repo: repo, req: job.req, entry: entry, s: sandbox.Of(r, job.req.ID)}
		outcome, err := l.run(ctx, verifiedTree)
		l.fillPartial(&job.partial)
		if closeErr := l.close(); closeErr != nil || !branchMoved(err) {
			return outcome, errors.Join(err, closeErr)
		}
		if job.retries == maxLandRetries {
			return landOutcome{}, &fault.KeepsMovingError{ID: job.req.ID, Branch: core.ShortBranch(l.target.Branch), Times: maxLandRetries + 1}
		}
		job.retries++
		if err := waitBackoff(ctx, job.retries, landBackoff); err != nil {
			return landOutcome{}, err
		}
		if entry, done, err = landingEntry(ctx, r, repo, job.req); err != nil || done != nil {
			return landOutcome{landed: *cmp.Or(done, &Result{})}, err
		}
	}
}

// landingEntry reads the record of the sandbox to land. If it has landed before, done is the result of that landing.
func landingEntry(ctx context.Context, r *core.Repository, repo *git.Repo, req Request) (entry store.Entry[store.InvocationMeta], done *Result, err error) {
	if err := Recover(ctx, r, repo); err != nil { // an interrupted landing whose recovery failed when the lock was taken
		return entry, nil, err
	}
	entry = r.Store.Invocation(r.ID, req.ID, nil) // the record may have changed while we waited for the lock
	if entry.Defect == store.NoDefect && entry.Record.Landing == store.Landed {
		landed, err := completeLanded(ctx, r, repo, entry, req.DryRun)
		return entry, &landed, err
	}
	if _, err := core.InvocationFromEntry(entry, nil).Path(); err != nil {
		return entry, nil, err
	}
	if of := entry.Record.VerifiesInvocation; of != "" {
		return entry, nil, &fault.TemporarySandboxError{ID: entry.ID, Verifies: of}
	}
	return entry, nil, nil
}

// branchMoved reports whether err says that the branch was moved, or checked out in another worktree, since we read it.
func branchMoved(err error) bool {
	return fault.Is[*update.MovedRefError](err) || fault.Is[*update.CheckoutMovedError](err)
}

// maxLandRetries bounds how often a landing starts over because other processes committed to the branch, or in the
// sandbox, during the landing. A commit takes longer than a landing, and the wait grows with every retry, so a landing
// gets its chance between two commits.
const maxLandRetries = 50

// landAttempt is one attempt to land one sandbox.
type landAttempt struct {
	r     *core.Repository
	repo  *git.Repo // holds the repository lock
	req   Request
	entry store.Entry[store.InvocationMeta]
	s     *sandbox.Sandbox

	lostModules []string // repositories of submodules that may hold what is kept nowhere else

	finishes *core.Worktree // worktree whose branch is merged into its parent branch, instead of a sandbox; nil for a landing

	target           core.IntegrationTarget
	handle           *sandbox.Handle
	releases         []func() // functions that release the locks on the sandbox; called in reverse order
	merger           *merge.Merger
	waitMergerClosed func() (struct{}, error) // waits until merger is closed; nil before startMergerClose

	scanStart   time.Time // start of the scan; later writes to the sandbox may be missing from scanResult
	scanResult  status.Report
	submodules  map[string]string // submodules that hold nothing new, as in git.WorktreeSpec
	gitlinks    []merge.Gitlink   // submodules that the landing adds or changes
	tip         string            // last commit that lands
	commits     []merge.RangeCommit
	trailers    []string // trailers of the new commits, as agency.land.trailers names them
	commitCount int      // commits that the integration branch gains; a rebase may create fewer than it replays
	newTip      string   // new commit of the integration branch; empty if the branch has all of the work
	oldTrash    string   // commit of the trash ref before the landing; empty if there was none
}

// run makes the commit that lands and publishes it, unless it has to be verified first.
func (l *landAttempt) run(ctx context.Context, verifiedTree string) (landOutcome, error) {
	if err := l.prepare(ctx); err != nil {
		return landOutcome{}, err
	}
	if err := l.makeCommit(ctx); err != nil {
		return landOutcome{}, err
	}
	if err := l.checkSubmodules(ctx); err != nil {
		return landOutcome{}, err
	}
	c, err := l.prepareCandidate(ctx, verifiedTree)
	if err != nil || c != nil {
		return landOutcome{needsVerify: c, branch: l.target.Branch}, err
	}
	marked, markersErr := l.findNewMarkers(ctx)
	landed, err := l.publishLanding(ctx)
	if err == nil {
		l.warnMarkers(marked, markersErr)
	}
	return landOutcome{landed: landed}, err
}

// findNewMarkers lists the files to which the landing adds conflict markers.
func (l *landAttempt) findNewMarkers(ctx context.Context) ([]string, error) {
	if l.newTip == "" {
		return nil, nil
	}
	return l.merger.FilesWithNewMarkers(ctx, l.target.Commit, l.newTip)
}

// warnMarkers warns about files with conflict markers. They may be documentation, so that they are no reason to refuse.
func (l *landAttempt) warnMarkers(marked []string, err error) {
	switch {
	case err != nil:
		l.r.Warn("conflict markers were not looked for: %v", err)
	case len(marked) > 0:
		l.r.Warn("%s adds conflict markers to:\n%s", l.s.ID, fault.ListPaths(marked))
	}
}

func (l *landAttempt) close() error {
	l.startMergerClose()
	_, err := l.waitMergerClosed()
	l.merger, l.waitMergerClosed = nil, nil
	l.releaseSandbox()
	return err
}

// startMergerClose closes the merger in the background.
func (l *landAttempt) startMergerClose() {
	if l.waitMergerClosed == nil {
		merger := l.merger
		l.waitMergerClosed = proc.Async(func() (struct{}, error) { return struct{}{}, merger.Close() })
	}
}

// fillPartial copies the tip and the target branch, as far as they are known, into a result.
func (l *landAttempt) fillPartial(known *Result) {
	known.Tip = cmp.Or(l.scanResult.Head, known.Tip)
	if l.target.Branch != "" {
		known.Branch = core.ShortBranch(l.target.Branch)
	}
}

// releaseSandbox releases the locks on the sandbox.
func (l *landAttempt) releaseSandbox() {
	for len(l.releases) > 0 {
		l.releases[len(l.releases)-1]()
		l.releases = l.releases[:len(l.releases)-1]
	}
}
