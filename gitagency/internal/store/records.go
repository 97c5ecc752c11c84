package store

import (
	"fmt"
	"strings"
	"time"
)

// InvocationMeta is the canonical record of an invocation.
type InvocationMeta struct {
	SchemaVersion         string     `json:"schema_version"`
	InvocationID          string     `json:"invocation_id"`
	InvocationName        string     `json:"invocation_name,omitempty"`
	IntegrationWorktreeID string     `json:"integration_worktree_id"`
	SandboxPath           string     `json:"sandbox_path"`
	SandboxBranch         string     `json:"sandbox_branch"`
	BaseCommit            string     `json:"base_commit"`
	FromSnapshot          string     `json:"from_snapshot,omitempty"` // the commit of the snapshot whose state it began in
	Verifies              string     `json:"verifies,omitempty"`      // the invocation whose landing is tried in it; it goes when that is done
	Runner                string     `json:"runner"`
	Mode                  string     `json:"mode"`
	Status                string     `json:"status"`
	StartedAt             time.Time  `json:"started_at"`
	StartedNS             int64      `json:"started_ns,omitempty"` // nanoseconds later it was made: the order of those of one second
	Primitives            Primitives `json:"primitives"`
	Limits                Limits     `json:"limits,omitzero"`

	// Written by later commands.
	SyncedCommit string     `json:"synced_commit,omitempty"` // of the integration branch, that a sync last brought in
	Landing      string     `json:"landing,omitempty"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`

	Submission
	LandedAs
}

// Submission is what review left in a record. What was said last stays when the state goes on.
type Submission struct {
	SubmittedAt     *time.Time `json:"submitted_at,omitempty"` // to the nanosecond: the order in which work lands
	SubmittedCommit string     `json:"submitted_commit,omitempty"`
	ReviewNote      string     `json:"review_note,omitempty"`
	RejectedAt      *time.Time `json:"rejected_at,omitempty"`
	RejectedReason  string     `json:"rejected_reason,omitempty"`
}

// LandedAs is what landing, and taking it back, left in a record.
type LandedAs struct {
	LandedAt       *time.Time `json:"landed_at,omitempty"`       // unlike finished_at, it stays when more is kept of the sandbox
	LandedCommit   string     `json:"landed_commit,omitempty"`   // the commit of the integration branch that has it
	LandedBefore   string     `json:"landed_before,omitempty"`   // what that branch was at before
	LandedTip      string     `json:"landed_tip,omitempty"`      // what the sandbox was at
	LandedBranch   string     `json:"landed_branch,omitempty"`   // the integration branch, without refs/heads/
	LandedStrategy string     `json:"landed_strategy,omitempty"` // how
	LookedAt       *time.Time `json:"looked_at,omitempty"`       // what was written to the sandbox from then on may not have
	UnlandedCommit string     `json:"unlanded_commit,omitempty"` // the commit that took it back
	UnlandedAt     *time.Time `json:"unlanded_at,omitempty"`
}

// Primitives are the five independent choices made when a sandbox starts.
type Primitives struct {
	Changeset string `json:"changeset"`
	Platform  string `json:"platform"`
	Isolation string `json:"isolation"`
	Outputs   string `json:"outputs"`
	Software  string `json:"software"`
}

// Limits are what the commands of a sandbox may use at most; what is zero is not bound.
type Limits struct {
	Memory     int64 `json:"memory,omitempty"`     // bytes, of all of them together
	Processes  int   `json:"processes,omitempty"`  // and threads
	FileSize   int64 `json:"file_size,omitempty"`  // bytes
	TimeoutMS  int64 `json:"timeout_ms,omitempty"` // of each
	Nice       int   `json:"nice,omitempty"`       // the least
	BestEffort bool  `json:"best_effort,omitempty"`
}

// WorktreeMeta is the record of an integration worktree.
type WorktreeMeta struct {
	SchemaVersion string    `json:"schema_version"`
	WorktreeID    string    `json:"worktree_id"`
	Name          string    `json:"name"`
	RepoID        string    `json:"repo_id"`
	Branch        string    `json:"branch"`
	ParentBranch  string    `json:"parent_branch"`
	TreePath      string    `json:"tree_path"`
	CreatedAt     time.Time `json:"created_at"`
	State         string    `json:"state"`
}

// The states of an integration worktree, and those of the work of an invocation that is no longer only
// being worked on. Only the last two are ends.
const (
	Present   = "present"
	Archived  = "archived"
	Review    = "review"
	Rejected  = "rejected"
	Landed    = "landed"
	Discarded = "discarded"
)

// check says what a record lacks; empty when it is complete.
func (m InvocationMeta) check() string {
	return missing(m.SchemaVersion, m.StartedAt, []field{
		{"invocation_id", m.InvocationID},
		{"integration_worktree_id", m.IntegrationWorktreeID},
		{"sandbox_path", m.SandboxPath},
		{"sandbox_branch", m.SandboxBranch},
		{"base_commit", m.BaseCommit},
		{"status", m.Status},
	})
}

func (m InvocationMeta) id() string { return m.InvocationID }
func (m InvocationMeta) began() time.Time {
	if m.StartedAt.IsZero() {
		return m.StartedAt
	}
	return m.StartedAt.Add(time.Duration(m.StartedNS))
}

func (m WorktreeMeta) check() string {
	return missing(m.SchemaVersion, m.CreatedAt, []field{
		{"worktree_id", m.WorktreeID},
		{"name", m.Name},
		{"repo_id", m.RepoID},
		{"tree_path", m.TreePath},
		{"state", m.State},
	})
}

func (m WorktreeMeta) id() string       { return m.WorktreeID }
func (m WorktreeMeta) began() time.Time { return m.CreatedAt }

type field struct{ name, value string }

func missing(schema string, at time.Time, required []field) string {
	if major, _, _ := strings.Cut(schema, "."); major != "1" {
		return fmt.Sprintf("schema_version is %q, not 1.x", schema)
	}
	if at.IsZero() {
		return "its time is missing"
	}
	for _, f := range required {
		if f.value == "" {
			return f.name + " is missing"
		}
	}
	return ""
}
