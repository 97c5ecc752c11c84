package gitagency

import (
	"cmp"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Invocation is one piece of agent work: an id, a record, a sandbox.
type Invocation struct {
	ID            string     `json:"invocation_id"`
	Name          string     `json:"invocation_name"`
	WorktreeID    string     `json:"integration_worktree_id"`
	Worktree      string     `json:"integration_worktree"` // the name of that worktree
	SandboxPath   string     `json:"sandbox_path"`
	SandboxBranch string     `json:"sandbox_branch"`
	BaseCommit    string     `json:"base_commit"`
	FromSnapshot  string     `json:"from_snapshot,omitempty"` // the snapshot whose state it began in
	Verifies      string     `json:"verifies,omitempty"`      // the invocation whose landing is tried in it, if it is for that alone
	SyncedCommit  string     `json:"synced_commit,omitempty"` // what of the integration branch a sync last brought in
	Runner        string     `json:"runner"`
	Mode          string     `json:"mode"`
	Status        string     `json:"status"`
	Landing       string     `json:"landing"`
	TrashRef      string     `json:"trash_ref,omitempty"` // where the work of one that was landed or discarded is kept
	StartedAt     time.Time  `json:"started_at"`
	Primitives    Primitives `json:"primitives"`
	Limits        LimitsMade `json:"limits,omitzero"` // what its commands may use at most
	Broken        bool       `json:"broken"`
	BrokenReason  string     `json:"broken_reason"`

	// What review and landing left in the record; each only when there is any.
	SubmittedAt     time.Time `json:"submitted_at,omitzero"`      // the order in which work lands
	SubmittedCommit string    `json:"submitted_commit,omitempty"` // what the sandbox was at then
	ReviewNote      string    `json:"review_note,omitempty"`
	RejectedAt      time.Time `json:"rejected_at,omitzero"`
	RejectedReason  string    `json:"rejected_reason,omitempty"`
	LandedAt        time.Time `json:"landed_at,omitzero"`
	LandedCommit    string    `json:"landed_commit,omitempty"` // the commit of the integration branch that has it
	LandedBefore    string    `json:"landed_before,omitempty"` // what that branch was at before
	LandedTip       string    `json:"landed_tip,omitempty"`    // what the sandbox was at
	LandedBranch    string    `json:"landed_branch,omitempty"` // the integration branch
	LandedStrategy  string    `json:"landed_strategy,omitempty"`
	UnlandedCommit  string    `json:"unlanded_commit,omitempty"` // the commit that took it back
	UnlandedAt      time.Time `json:"unlanded_at,omitzero"`

	Radar string `json:"radar,omitempty"` // what is in the way of landing it; only when that was asked: see FillRadar

	entry store.Entry[store.InvocationMeta]
}

// Err is nil, or says how the invocation is broken.
func (i Invocation) Err() error {
	if !i.Broken {
		return nil
	}
	return &BrokenError{Kind: "invocation", ID: i.ID, Reason: i.BrokenReason, Detail: i.entry.Detail, Interrupted: i.entry.Intent != nil}
}

// Path is the sandbox path of an invocation that has a sandbox.
func (i Invocation) Path() (string, error) {
	if !i.Broken && ended(i.entry.Record) {
		return "", &EndedError{ID: i.ID, Landing: i.Landing, Ref: trashRef(i.ID)}
	}
	return i.SandboxPath, i.Err()
}

// ListRequest says which invocations to list.
type ListRequest struct {
	All      bool   // also those that are broken or have ended
	Worktree string // only those of this worktree; "" is every one
}

// Invocations lists invocations, the oldest first.
func (r *Repository) Invocations(req ListRequest) ([]Invocation, error) {
	r.warnElsewhere()
	only := ""
	if req.Worktree != "" {
		wt, err := r.Worktree(req.Worktree)
		if err != nil {
			return nil, err
		}
		only = wt.ID
	}
	entries, err := r.store.Invocations(r.ID, r.busy)
	if err != nil {
		return nil, err
	}
	names, err := r.worktreeNames()
	if err != nil {
		return nil, err
	}
	invocations := []Invocation{}
	for _, e := range entries {
		switch {
		case !req.All && (e.Broken != store.Whole || ended(e.Record)):
		case only != "" && e.Record.IntegrationWorktreeID != only:
		default:
			invocations = append(invocations, invocation(e, names))
		}
	}
	return invocations, nil
}

// Invocation finds an invocation by its id or a unique prefix of it, never by its name. A broken one
// answers to its full id only.
func (r *Repository) Invocation(query string) (Invocation, error) {
	r.warnElsewhere()
	entries, err := r.store.InvocationsLike(r.ID, query, r.busy)
	if err != nil {
		return Invocation{}, err
	}
	e, err := store.Resolve("invocation", entries, query, nil)
	if is[*NotFoundError](err) && ids.Valid(query) {
		// An empty directory is hidden while anybody holds the lock, as it may be about to be filled. Who
		// knows its full id means what was left there.
		if _, there := store.Taken(r.store.InvocationDir(r.ID, query)); there {
			if e = r.store.Invocation(r.ID, query, nil); !e.UnderWay {
				err = nil
			}
		}
	}
	if err != nil {
		return Invocation{}, err
	}
	names := map[string]string{}
	if id := e.Record.IntegrationWorktreeID; ids.Valid(id) { // it is a word in a file, and becomes a path
		names[id] = r.store.Worktree(r.ID, id, nil).Record.Name
	}
	return invocation(e, names), nil
}

func (r *Repository) worktreeNames() (map[string]string, error) {
	entries, err := r.store.Worktrees(r.ID, nil)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, e := range entries {
		names[e.ID] = e.Record.Name
	}
	return names, nil
}

func invocation(e store.Entry[store.InvocationMeta], worktrees map[string]string) Invocation {
	m := e.Record
	i := Invocation{
		ID: e.ID, Name: m.InvocationName, WorktreeID: m.IntegrationWorktreeID, Worktree: worktrees[m.IntegrationWorktreeID],
		SandboxPath: e.Tree, SandboxBranch: m.SandboxBranch, BaseCommit: m.BaseCommit, FromSnapshot: m.FromSnapshot, Verifies: m.Verifies, SyncedCommit: m.SyncedCommit, Runner: m.Runner, Mode: m.Mode,
		Status: m.Status, Landing: m.Landing, StartedAt: m.StartedAt, Primitives: m.Primitives, Limits: m.Limits,
		Broken: e.Broken != store.Whole, BrokenReason: string(e.Broken), entry: e,

		SubmittedAt: whenever(m.SubmittedAt), SubmittedCommit: m.SubmittedCommit, ReviewNote: m.ReviewNote,
		RejectedAt: whenever(m.RejectedAt), RejectedReason: m.RejectedReason,
		LandedCommit: m.LandedCommit, LandedBefore: m.LandedBefore, LandedTip: m.LandedTip,
		LandedBranch: m.LandedBranch, LandedStrategy: m.LandedStrategy, UnlandedCommit: m.UnlandedCommit, UnlandedAt: whenever(m.UnlandedAt),
	}
	if ended(m) {
		i.TrashRef = trashRef(e.ID)
	}
	if m.Landing == store.Landed {
		i.LandedAt = whenever(cmp.Or(m.LandedAt, m.FinishedAt)) // which is all that there was once
	}
	if i.StartedAt.IsZero() {
		i.StartedAt, _ = ids.Time(e.ID)
	}
	return i
}

// whenever is when something happened; the zero time when it has not.
func whenever(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// ended reports whether a record says that its sandbox is gone on purpose.
func ended(m store.InvocationMeta) bool {
	return m.Landing == store.Landed || m.Landing == store.Discarded
}
