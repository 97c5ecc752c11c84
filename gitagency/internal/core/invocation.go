package core

import (
	"cmp"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// CopiedPath is a plain directory of which the commands of a sandbox see a copy.
type CopiedPath struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // why no overlay can be mounted on it
}

// Invocation is one piece of agent work: an id, a record, a sandbox.
type Invocation struct {
	ID                string           `json:"invocation_id"`
	Name              string           `json:"invocation_name"`
	WorktreeID        string           `json:"integration_worktree_id"`
	Worktree          string           `json:"integration_worktree"` // name of the integration worktree
	SandboxPath       string           `json:"sandbox_path"`
	SandboxBranch     string           `json:"sandbox_branch"`
	BaseCommit        string           `json:"base_commit"`
	FromSnapshot      string           `json:"from_snapshot,omitempty"` // snapshot that the sandbox was started from
	CloneSource       string           `json:"clone_source,omitempty"`  // remote that a clone has as its origin; "." for the repository
	Verifies          string           `json:"verifies,omitempty"`      // invocation whose landing is verified in this temporary sandbox; empty for all others
	SyncedCommit      string           `json:"synced_commit,omitempty"` // commit of the integration branch that the last sync merged
	IntegrationBranch string           `json:"integration_branch"`      // full ref that the work lands on; empty where it is only known when it lands
	Runner            string           `json:"runner"`
	Mode              string           `json:"mode"`
	Status            string           `json:"status"`
	Landing           string           `json:"landing"`
	TrashRef          string           `json:"trash_ref,omitempty"`     // ref that keeps the work of a landed or discarded invocation
	TrashArchive      string           `json:"trash_archive,omitempty"` // archive of what no commit can hold
	StartedAt         time.Time        `json:"started_at"`
	Primitives        store.Primitives `json:"primitives"`
	Limits            store.Limits     `json:"limits,omitzero"`         // limits of its commands
	AllowedRead       []string         `json:"allowed_read,omitempty"`  // paths that were made readable after the start
	AllowedWrite      []string         `json:"allowed_write,omitempty"` // paths that were made writable after the start
	Paths             []string         `json:"paths,omitempty"`         // plain directories that the sandbox is over; none for a sandbox of a repository
	CopiedPaths       []CopiedPath     `json:"copied_paths,omitempty"`  // those of Paths of which commands see a copy
	Broken            bool             `json:"broken"`
	BrokenReason      string           `json:"broken_reason"`

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

	State      string    `json:"state"`                // see SetState
	ExitCode   *int      `json:"exit_code"`            // of the last command; nil if there was none
	FinishedAt time.Time `json:"finished_at,omitzero"` // end of the last command; once the invocation has ended, its end

	// Fields that are not in the record; listing.Fill sets them.
	Running      bool      `json:"running"`                // a command runs in the sandbox
	RunningSince time.Time `json:"running_since,omitzero"` // start of the oldest of its commands
	Ahead        *int      `json:"ahead"`                  // number of commits that are not on the integration branch; nil if unknown
	Dirty        *int      `json:"dirty"`                  // number of changed and untracked files; nil if unknown

	Radar string `json:"radar,omitempty"` // summary of the radar; set only by radar.Fill

	Entry *store.Entry[store.InvocationMeta] `json:"-"` // nil in the zero value; not to be changed, since copies share it
}

// Err returns a *BrokenError if the invocation is broken, else nil.
func (i Invocation) Err() error {
	if !i.Broken {
		return nil
	}
	return &fault.BrokenError{Kind: "invocation", ID: i.ID, Reason: i.BrokenReason, Detail: i.Entry.Detail, Interrupted: i.Entry.Intent != nil}
}

// HasEnded reports whether the work of the invocation has landed or was discarded.
func (i Invocation) HasEnded() bool { return store.HasEnded(i.Landing) }

// NewEndedError returns the error for an invocation that has ended; onPaths is set for one over plain directories.
func NewEndedError(id, landing string, onPaths bool) *fault.EndedError {
	err := &fault.EndedError{ID: id, Landing: landing}
	if !onPaths {
		err.Ref = TrashRef(id)
	}
	return err
}

// Path returns the path of the sandbox. It fails for an invocation that is broken, landed or discarded.
func (i Invocation) Path() (string, error) {
	if !i.Broken && i.HasEnded() {
		return "", NewEndedError(i.ID, i.Landing, len(i.Paths) > 0)
	}
	return i.SandboxPath, i.Err()
}

// ListRequest selects the invocations to list.
type ListRequest struct {
	All      bool   // include broken, landed and discarded ones
	Worktree string // only those of this worktree; empty: of all worktrees

	OnBroken func(count int) // called with the number of broken ones that are left out; may be nil
}

// Invocations lists invocations, oldest first.
func (r *Repository) Invocations(req ListRequest) ([]Invocation, error) {
	load := proc.Async(func() (loadedEntries, error) { return r.loadEntries(req.All) })
	r.warnRecordsElsewhere() // which takes as long
	only := ""
	if req.Worktree != "" {
		wt, err := r.Worktree(req.Worktree)
		if err != nil {
			return nil, err
		}
		only = wt.ID
	}
	worktrees, err := r.worktreeRecords()
	if err != nil {
		return nil, err
	}
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	loaded.warn(r)
	invocations, broken := make([]Invocation, 0, len(loaded.entries)), 0
	for _, e := range loaded.entries {
		switch {
		case !req.All && e.Defect != store.NoDefect:
			if only == "" || e.Record.IntegrationWorktreeID == only {
				broken++
			}
		case only != "" && e.Record.IntegrationWorktreeID != only:
		default:
			invocations = append(invocations, newInvocation(e, worktrees))
		}
	}
	if req.OnBroken != nil {
		req.OnBroken(broken)
	}
	return invocations, nil
}

// entries returns the stored entries of all invocations, or of those that have not ended.
func (r *Repository) entries(all bool) ([]*store.Entry[store.InvocationMeta], error) {
	loaded, err := r.loadEntries(all)
	loaded.warn(r)
	return loaded.entries, err
}

// loadedEntries are stored entries, and why their records could not be cached.
type loadedEntries struct {
	entries   []*store.Entry[store.InvocationMeta]
	notCached error
}

func (l loadedEntries) warn(r *Repository) {
	if l.notCached != nil {
		r.Warn("the records could not be cached: %v", l.notCached)
	}
}

// loadEntries is entries without a warning, so that it can run in the background.
func (r *Repository) loadEntries(all bool) (loaded loadedEntries, err error) {
	if all {
		var entries []store.Entry[store.InvocationMeta]
		entries, err = r.Store.Invocations(r.ID, r.IsLocked)
		for i := range entries {
			loaded.entries = append(loaded.entries, &entries[i])
		}
	} else {
		loaded.entries, err = r.Store.LiveInvocations(r.ID, r.IsLocked, func(err error) { loaded.notCached = err })
	}
	return loaded, err
}

// worktreeRecords maps the ids of the integration worktrees to their records.
func (r *Repository) worktreeRecords() (map[string]store.WorktreeMeta, error) {
	entries, err := r.Store.Worktrees(r.ID, nil)
	if err != nil {
		return nil, err
	}
	records := map[string]store.WorktreeMeta{}
	for _, e := range entries {
		records[e.ID] = e.Record
	}
	return records, nil
}

// InvocationFromEntry converts the stored entry of an invocation. worktrees maps ids of worktrees to their records; a
// worktree that it lacks leaves the fields empty that come from its record.
func InvocationFromEntry(e store.Entry[store.InvocationMeta], worktrees map[string]store.WorktreeMeta) Invocation {
	return newInvocation(&e, worktrees)
}

// newInvocation is InvocationFromEntry without a copy of the entry.
func newInvocation(e *store.Entry[store.InvocationMeta], worktrees map[string]store.WorktreeMeta) Invocation {
	m := &e.Record
	wt := worktrees[m.IntegrationWorktreeID]
	run, status := newRun(e)
	i := Invocation{
		ID: e.ID, Name: m.InvocationName, WorktreeID: m.IntegrationWorktreeID, Worktree: wt.Name,
		IntegrationBranch: IntegrationBranch(*m, wt),
		SandboxPath:       e.TreePath, SandboxBranch: m.SandboxBranch, BaseCommit: m.BaseCommit, FromSnapshot: m.FromSnapshot, CloneSource: m.CloneSource, Verifies: m.VerifiesInvocation, SyncedCommit: m.SyncedCommit, Runner: m.Runner, Mode: m.Mode,
		Status: status, Run: run, Landing: m.Landing, StartedAt: m.StartedAt, Primitives: m.Primitives, Limits: m.Limits, AllowedRead: m.Grants().Read, AllowedWrite: m.Grants().Write,
		Broken: e.Defect != store.NoDefect, BrokenReason: string(e.Defect), Entry: e,

		SubmittedAt: TimeOrZero(m.SubmittedAt), SubmittedCommit: m.SubmittedCommit, ReviewNote: m.ReviewNote,
		RejectedAt: TimeOrZero(m.RejectedAt), RejectedReason: m.RejectedReason,
		LandedCommit: m.LandedCommit, LandedBefore: m.LandedBefore, LandedTip: m.LandedTip,
		LandedBranch: m.LandedBranch, LandedStrategy: m.LandedStrategy, UnlandedCommit: m.UnlandedCommit, UnlandedAt: TimeOrZero(m.UnlandedAt),
		ExitCode: m.LastExitCode(), FinishedAt: TimeOrZero(m.FinishedAt),
	}
	for _, p := range m.Paths {
		i.Paths = append(i.Paths, p.Path)
		if p.Copied != "" {
			i.CopiedPaths = append(i.CopiedPaths, CopiedPath{p.Path, p.Copied})
		}
	}
	i.SetState()
	if m.HasEnded() {
		i.TrashRef = TrashRef(e.ID)
		if m.HasTrashArchive {
			i.TrashArchive = store.TrashArchiveOf(e.TreePath)
		}
	}
	if m.Landing == store.Landed {
		i.LandedAt = TimeOrZero(cmp.Or(m.LandedAt, m.FinishedAt)) // old records have only FinishedAt
	}
	if i.StartedAt.IsZero() {
		i.StartedAt, _ = ids.Time(e.ID)
	}
	return i
}

// TimeOrZero returns the time that a pointer leads to, or the zero time for nil.
func TimeOrZero(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

const (
	InvocationVariable = "AGENCY_INVOCATION_ID"
	IsolationVariable  = "AGENCY_ISOLATION" // only behind walls
)

// EventTime returns the current time as events have it: in UTC, to the millisecond, which orders the events of several
// invocations.
func (r *Repository) EventTime() time.Time { return r.Opts.Now().UTC().Truncate(time.Millisecond) }

// AppendEvent appends an event to the history of an invocation. A failure is only a warning: the operation itself is
// already done.
func (r *Repository) AppendEvent(id string, event any) {
	if err := r.Store.AppendEvent(r.ID, id, event); err != nil {
		r.Warn("history of %s: %v", id, err)
	}
}
