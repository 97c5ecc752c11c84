package gitagency

import (
	"context"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/archive"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/listing"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/radar"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// CopiedPath is a plain directory of which the commands of a sandbox see a copy.
type CopiedPath struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // why no overlay can be mounted on it
}

// Invocation is one piece of agent work: an id, a record, a sandbox.
type Invocation struct {
	ID                string       `json:"invocation_id"`
	Name              string       `json:"invocation_name"`
	WorktreeID        string       `json:"integration_worktree_id"`
	Worktree          string       `json:"integration_worktree"` // name of the integration worktree
	SandboxPath       string       `json:"sandbox_path"`
	SandboxBranch     string       `json:"sandbox_branch"`
	BaseCommit        string       `json:"base_commit"`
	FromSnapshot      string       `json:"from_snapshot,omitempty"` // snapshot that the sandbox was started from
	CloneSource       string       `json:"clone_source,omitempty"`  // remote that a clone has as its origin; "." for the repository
	Verifies          string       `json:"verifies,omitempty"`      // invocation whose landing is verified in this temporary sandbox; empty for all others
	SyncedCommit      string       `json:"synced_commit,omitempty"` // commit of the integration branch that the last sync merged
	IntegrationBranch string       `json:"integration_branch"`      // full ref that the work lands on; empty where it is only known when it lands
	Runner            string       `json:"runner"`
	Mode              string       `json:"mode"`
	Status            string       `json:"status"`
	Landing           string       `json:"landing"`
	TrashRef          string       `json:"trash_ref,omitempty"`     // ref that keeps the work of a landed or discarded invocation
	TrashArchive      string       `json:"trash_archive,omitempty"` // archive of what no commit can hold
	StartedAt         time.Time    `json:"started_at"`
	Primitives        Primitives   `json:"primitives"`
	Limits            Limits       `json:"limits,omitzero"`         // limits of its commands
	AllowedRead       []string     `json:"allowed_read,omitempty"`  // paths that Allow made readable
	AllowedWrite      []string     `json:"allowed_write,omitempty"` // paths that Allow made writable; with the prefix private: for the sandbox alone
	Paths             []string     `json:"paths,omitempty"`         // plain directories that the sandbox is over; none for a sandbox of a repository
	CopiedPaths       []CopiedPath `json:"copied_paths,omitempty"`  // those of Paths of which commands see a copy instead of an overlay
	Broken            bool         `json:"broken"`
	BrokenReason      string       `json:"broken_reason"`

	// Fields that review and landing added to the record; each is set only after its event.
	SubmittedAt     time.Time `json:"submitted_at,omitzero"`      // time of submission; work lands in this order
	SubmittedCommit string    `json:"submitted_commit,omitempty"` // commit of the sandbox when it was submitted
	ReviewNote      string    `json:"review_note,omitempty"`
	RejectedAt      time.Time `json:"rejected_at,omitzero"`
	RejectedReason  string    `json:"rejected_reason,omitempty"`
	LandedAt        time.Time `json:"landed_at,omitzero"`
	LandedCommit    string    `json:"landed_commit,omitempty"` // commit on the integration branch that contains the work
	LandedBefore    string    `json:"landed_before,omitempty"` // commit of that branch before the landing
	LandedTip       string    `json:"landed_tip,omitempty"`    // commit of the sandbox that landed
	LandedBranch    string    `json:"landed_branch,omitempty"` // the integration branch
	LandedStrategy  string    `json:"landed_strategy,omitempty"`
	UnlandedCommit  string    `json:"unlanded_commit,omitempty"` // commit that reverted the landing
	UnlandedAt      time.Time `json:"unlanded_at,omitzero"`

	Run

	// State is what the invocation is doing: StateIdle or one of the constants after it, or the Status of a run that has
	// ended or waits: StatusFinished, StatusFailed, StatusBlocked, StatusStopped or StatusTimedOut.
	State      string    `json:"state"`
	ExitCode   *int      `json:"exit_code"`            // of the last command; nil if there was none
	FinishedAt time.Time `json:"finished_at,omitzero"` // end of the last command; once the invocation has ended, its end

	// Fields that are not in the record; they are set only if ListRequest.Activity asks for it, and by InvocationActivity.
	Running      bool      `json:"running"`                // a command runs in the sandbox
	RunningSince time.Time `json:"running_since,omitzero"` // start of the oldest of its commands
	Ahead        *int      `json:"ahead"`                  // number of commits that are not on the integration branch; nil if unknown
	Dirty        *int      `json:"dirty"`                  // number of changed and untracked files; nil if unknown

	Radar string `json:"radar,omitempty"` // result of the radar; set only if ListRequest.Radar asks for it

	brokenDetail string // more about BrokenReason
	interrupted  bool   // the creation was interrupted
}

// Run is what the record of an invocation says about the runs of an agent in it. Text of the agent is untrusted.
type Run struct {
	Task         string    `json:"task,omitempty"`          // first line of the task
	SessionID    string    `json:"session_id,omitempty"`    // the same over every resume
	RunStartedAt time.Time `json:"run_started_at,omitzero"` // start of the last run
	Runs         int       `json:"runs,omitempty"`          // number of runs so far
	PID          int       `json:"pid,omitempty"`           // process that supervises the run, while it runs

	PlatformState  string `json:"platform_state,omitempty"`  // submitting, queued or running: state of the job of a run on another platform, as long as its end is not known
	PlatformDetail string `json:"platform_detail,omitempty"` // what the engine says about such a job
	PlatformJob    string `json:"platform_job,omitempty"`    // id of the job of the last run at its engine
	PlatformNode   string `json:"platform_node,omitempty"`   // host of the last run; empty if that is not known
	Attempt        int    `json:"attempt,omitempty"`         // number of the attempt of the last run: an engine may begin a run again

	StatusReason string    `json:"status_reason,omitempty"` // why the run has its status, if it did not simply finish
	Warnings     []string  `json:"run_warnings,omitempty"`  // what a finished run should not hide, such as a denied tool
	LastMessage  string    `json:"last_message,omitempty"`  // last text of the agent
	CostUSD      float64   `json:"cost_usd,omitempty"`      // as far as the agent tells it
	Tokens       int64     `json:"tokens,omitempty"`        // as far as the agent tells them
	Question     string    `json:"question,omitempty"`      // unanswered question of the agent
	Options      []string  `json:"question_options,omitempty"`
	Context      string    `json:"question_context,omitempty"`
	AskedAt      time.Time `json:"asked_at,omitzero"`
}

func newInvocation(i core.Invocation) Invocation {
	public := Invocation{
		ID: i.ID, Name: i.Name, WorktreeID: i.WorktreeID, Worktree: i.Worktree, SandboxPath: i.SandboxPath, SandboxBranch: i.SandboxBranch,
		BaseCommit: i.BaseCommit, IntegrationBranch: i.IntegrationBranch, FromSnapshot: i.FromSnapshot, CloneSource: i.CloneSource, Verifies: i.Verifies, SyncedCommit: i.SyncedCommit,
		Runner: i.Runner, Mode: i.Mode, Status: i.Status, Landing: i.Landing, TrashRef: i.TrashRef, TrashArchive: i.TrashArchive, StartedAt: i.StartedAt,
		Primitives: Primitives(i.Primitives), Limits: newLimits(sandbox.LimitsFromRecord(i.Limits)),
		AllowedRead: i.AllowedRead, AllowedWrite: i.AllowedWrite, Paths: i.Paths, CopiedPaths: convertAll(i.CopiedPaths, func(p core.CopiedPath) CopiedPath { return CopiedPath(p) }),
		Broken: i.Broken, BrokenReason: i.BrokenReason,
		SubmittedAt: i.SubmittedAt, SubmittedCommit: i.SubmittedCommit, ReviewNote: i.ReviewNote,
		RejectedAt: i.RejectedAt, RejectedReason: i.RejectedReason,
		LandedAt: i.LandedAt, LandedCommit: i.LandedCommit, LandedBefore: i.LandedBefore, LandedTip: i.LandedTip,
		LandedBranch: i.LandedBranch, LandedStrategy: i.LandedStrategy, UnlandedCommit: i.UnlandedCommit, UnlandedAt: i.UnlandedAt,
		Run: Run(i.Run), State: i.State, ExitCode: i.ExitCode, FinishedAt: i.FinishedAt,
		Running: i.Running, RunningSince: i.RunningSince, Ahead: i.Ahead, Dirty: i.Dirty,
		Radar: i.Radar,
	}
	if i.Entry != nil {
		public.brokenDetail, public.interrupted = i.Entry.Detail, i.Entry.Intent != nil
	}
	return public
}

// Err returns a *BrokenError if the invocation is broken, else nil.
func (i Invocation) Err() error {
	if !i.Broken {
		return nil
	}
	return &BrokenError{Kind: "invocation", ID: i.ID, Reason: i.BrokenReason, Detail: i.brokenDetail, Interrupted: i.interrupted}
}

// Path returns the path of the sandbox. It fails for an invocation that is broken, landed or discarded.
func (i Invocation) Path() (string, error) {
	if !i.Broken && store.HasEnded(i.Landing) {
		return "", (*EndedError)(core.NewEndedError(i.ID, i.Landing, len(i.Paths) > 0))
	}
	return i.SandboxPath, i.Err()
}

// ListRequest selects the invocations to list.
type ListRequest struct {
	All      bool   // include broken, landed and discarded ones
	Worktree string // only those of this worktree; empty: of all worktrees
	Activity bool   // set Running, RunningSince, Ahead and Dirty, and State accordingly
	Radar    bool   // set the Radar field of those that can land; a worktree whose radar fails is a warning

	OnBroken func(count int) // called with the number of broken ones that are left out; may be nil
}

func (req ListRequest) internal() core.ListRequest {
	return core.ListRequest{All: req.All, Worktree: req.Worktree, OnBroken: req.OnBroken}
}

// Invocations lists invocations, oldest first.
func (r *Repository) Invocations(ctx context.Context, req ListRequest) ([]Invocation, error) {
	all, err := r.core.Invocations(req.internal())
	if err == nil && r.core.RefreshJobs(all...) {
		all, err = r.core.Invocations(req.internal())
	}
	if err == nil && req.Activity {
		err = listing.Fill(ctx, r.core, all)
		pathset.FillChanged(ctx, r.core, all)
	}
	if err == nil && req.Radar {
		err = radar.Fill(ctx, r.core, all)
	}
	if err != nil {
		return nil, publicError(err)
	}
	return convertAll(all, newInvocation), nil
}

// Invocation finds an invocation by its id; by a unique prefix of the id, or of its part after the dash; or by "@", the
// newest that has not ended, "@-1", the one before it, and so on. It never finds one by its name. A broken one is found by
// its full id only.
func (r *Repository) Invocation(query string) (Invocation, error) {
	i, err := r.core.Invocation(query)
	return newInvocation(i), publicError(err)
}

// ShortID returns the part of an id after the dash, which names an invocation as long as no other one has the same.
func ShortID(id string) string { return ids.Suffix(id) }

// Abbreviation returns a function that abbreviates the id of an invocation to its part after the dash if that is unique
// in the repository. A broken invocation must not be abbreviated, because it is found by its full id only.
func (r *Repository) Abbreviation() (func(id string) string, error) {
	abbreviate, err := r.core.Abbreviation()
	return abbreviate, publicError(err)
}

// CurrentInvocation returns the invocation whose sandbox contains the directory that the repository was opened from. A
// directory in no sandbox is a *StateError with reason.NotInSandbox.
func (r *Repository) CurrentInvocation() (Invocation, error) {
	i, err := r.core.CurrentInvocation()
	return newInvocation(i), publicError(err)
}

// InvocationActivity is Invocation that also sets Running, RunningSince, Ahead and Dirty, and State accordingly. A warning
// says why a number is unknown.
func (r *Repository) InvocationActivity(ctx context.Context, query string) (Invocation, error) {
	i, err := r.core.Invocation(query)
	if err == nil {
		err = listing.FillOne(ctx, r.core, &i)
	}
	if err == nil {
		pathset.FillChangedOfOne(ctx, r.core, &i)
	}
	return newInvocation(i), publicError(err)
}

// Refusals returns what was refused of a sandbox. It reads only the reasons that commands saved, and returns none for an
// invocation that has ended.
func (r *Repository) Refusals(id string) ([]Refusal, error) {
	refusals, err := doctor.Refusals(r.core, id)
	return convertAll(refusals, newRefusal), publicError(err)
}

// Primitives are the five independent choices made when a sandbox starts.
type Primitives struct {
	Changeset string `json:"changeset"`
	Platform  string `json:"platform"`
	Isolation string `json:"isolation"`
	Outputs   string `json:"outputs"`
	Software  string `json:"software"`

	SoftwareImage string `json:"software_image,omitempty"` // id of the image that Software names; empty if it names none, or if none was unpacked here
}

// DefaultPrimitives returns the primitives of a sandbox for which nothing was chosen.
func DefaultPrimitives() Primitives { return Primitives(settings.DefaultPrimitives()) }

// PrimitiveValues lists the values of a primitive that can be built, the default first.
func PrimitiveValues(name string) []string { return settings.PrimitiveValues(name) }

// StartRequest describes the sandbox to create.
type StartRequest struct {
	Worktree   string     // as for Repository.Worktree
	Name       string     // label for users; need not be unique
	Runner     string     // a known or configured agent, whose login a private home shows; empty for none
	Mode       string     // ModeHeaded or ModeHeadless; default: ModeHeadless
	Primitives Primitives // empty fields come from the profile, then from the defaults
	Profile    string     // profile: settings agency.<profile>.* in git config
	Limits     Limits     // upper limits for its commands

	// FromSnapshot is a snapshot whose state the sandbox starts in: a commit, in full or as a unique prefix, or
	// "<invocation>/<number>". Worktree then defaults to that of its invocation.
	FromSnapshot string

	CloneSource string // with the changeset clone, its remote "origin": the name of a remote, or "." for this repository; default: "local", else "origin", else "."

	From        string // commit-ish to start from instead of the integration branch, on which the work lands all the same
	WithChanges bool   // start with the uncommitted work in the tree of the integration worktree, which stays as it is

	Progress func(CopyProgress) // called as files of agency.copy are copied, never concurrently; may be nil
}

// CopyProgress is the progress of copying the files of agency.copy.
type CopyProgress struct {
	Files int   // number of files copied
	Bytes int64 // their size
	Done  bool  // the last call; warnings may follow
}

func (req StartRequest) internal() creation.Request {
	start := creation.Request{
		Worktree: req.Worktree, Name: req.Name, Runner: req.Runner, Mode: req.Mode, Primitives: store.Primitives(req.Primitives),
		Profile: req.Profile, Limits: req.Limits.internal(), FromSnapshot: req.FromSnapshot,
		From: req.From, WithChanges: req.WithChanges, CloneSource: req.CloneSource,
	}
	if req.Progress != nil {
		start.Progress = func(p creation.CopyProgress) { req.Progress(CopyProgress(p)) }
	}
	return start
}

// Start creates an invocation and its sandbox, or fails and leaves nothing. It runs nothing in the sandbox.
func (r *Repository) Start(ctx context.Context, req StartRequest) (Invocation, error) {
	i, err := creation.Start(ctx, r.core, req.internal())
	return newInvocation(i), publicError(err)
}

// DiscardResult reports what remains of a discarded invocation.
type DiscardResult struct {
	ID             string `json:"invocation_id"`
	TrashRef       string `json:"trash_ref"`    // ref that keeps the content of the sandbox; empty when there was none
	Commit         string `json:"trash_commit"` // commit that TrashRef points at
	Already        bool   `json:"already"`      // already discarded before this call
	CreationUndone bool   `json:"undone"`       // it was an interrupted creation, which was undone; not even a record is left
	EndedCommands  int    `json:"commands"`     // number of commands that still ran in the sandbox and were ended

	TrashArchive string   `json:"trash_archive"` // archive that keeps what no commit can hold; empty when there is none
	ArchiveSize  int64    `json:"archive_size"`  // its size in bytes
	Lost         []string `json:"lost"`          // with Force: files that are not kept, with the reasons; empty, not null

	CleanupDeferred bool     `json:"-"` // the tree is not removed, and most often renamed; another Discard of the id removes it
	CleanupLock     *os.File `json:"-"` // with CleanupDeferred: as long as it is open, here or in a process that inherited it, doctor and prune take the removal for under way
}

// FormatSize formats a number of bytes for people, as in "1.5 MiB".
func FormatSize(n int64) string { return archive.FormatSize(n) }

// DiscardRequest selects the invocation to discard.
type DiscardRequest struct {
	Query string // required: its id or a unique prefix
	Force bool   // discard it even if some of its content cannot be kept

	DeferCleanup bool     // leave the removal of the tree to a second Discard of the same id, if agency.autoDetach allows
	CleanupLock  *os.File // CleanupLock of an earlier result, which then serves for this one too; may be nil
}

// Discard ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files; files that no commit can hold go to an archive.
// Discarding twice is allowed and finishes an interrupted discard. Of an interrupted creation it removes every trace.
func (r *Repository) Discard(ctx context.Context, query string) (DiscardResult, error) {
	return r.DiscardWith(ctx, DiscardRequest{Query: query})
}

// DiscardWith is Discard with more choices.
func (r *Repository) DiscardWith(ctx context.Context, req DiscardRequest) (DiscardResult, error) {
	stopped, err := r.stopJob(ctx, req.Query, req.Force)
	if err != nil {
		return DiscardResult{}, publicError(err)
	}
	discarded, err := discard.Run(ctx, r.core, discard.Request(req))
	if stopped {
		discarded.EndedCommands++
	}
	if err == nil {
		r.platforms.Forget(ctx, discarded.ID)
	}
	return DiscardResult(discarded), publicError(err)
}

// Restore makes a new sandbox with the content of an invocation that was landed or discarded, as long as it is not
// pruned. The old invocation stays as it is.
func (r *Repository) Restore(ctx context.Context, query string) (Invocation, error) {
	if err := discard.FinishRemoval(ctx, r.core, query); err != nil {
		return Invocation{}, publicError(err)
	}
	restore := creation.Restore
	if r.IsPaths() {
		restore = pathset.Restore
	}
	i, err := restore(ctx, r.core, query)
	return newInvocation(i), publicError(err)
}

// Denial is a network access that the walls of a sandbox refused, with the number of attempts.
type Denial struct {
	Time   time.Time `json:"time"` // time of the last recorded attempt
	Kind   string    `json:"kind"` // protocol of the attempt: "http", "connect" or "socks"
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Count  int       `json:"count"` // number of attempts
	Entry  string    `json:"entry"` // entry of the outputs host list that would allow it; empty when none would
	Allow  string    `json:"allow"` // command line that allows it; for an ended sandbox, one that starts another; empty when there is none
}

func newDenial(d sandbox.Denial) Denial { return Denial(d) }

// Denials lists what the walls of a sandbox refused, the latest last. It also works for an invocation whose sandbox
// is gone. For a broken invocation it returns the list together with an error.
func (r *Repository) Denials(query string) ([]Denial, error) {
	denials, err := sandbox.Denials(r.core, query)
	return convertAll(denials, newDenial), publicError(err)
}
