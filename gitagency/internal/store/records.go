package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
	IntegrationBranch     string     `json:"integration_branch,omitempty"` // full ref that the work lands on; empty in older records: the branch of the worktree
	FromSnapshot          string     `json:"from_snapshot,omitempty"`      // commit of the snapshot that the sandbox started from
	CloneSource           string     `json:"clone_source,omitempty"`       // remote that a clone has as its origin; "." for the repository
	StartChanges          string     `json:"start_changes,omitempty"`      // commit of the user's uncommitted work that the sandbox started with; no ref keeps it
	VerifiesInvocation    string     `json:"verifies,omitempty"`           // temporary sandbox: the invocation whose landing it verifies
	Runner                string     `json:"runner"`
	Mode                  string     `json:"mode"`
	Status                string     `json:"status"`
	StartedAt             time.Time  `json:"started_at"`
	StartedNS             int64      `json:"started_ns,omitempty"` // nanoseconds to add to StartedAt: orders invocations of the same second
	Primitives            Primitives `json:"primitives"`
	Limits                Limits     `json:"limits,omitzero"`
	Allowed               *Allowed   `json:"allowed,omitempty"` // what 'git agency allow' changed; nil if nothing
	PathsFields

	// Written by later commands.
	SetupAt      *time.Time `json:"setup_at,omitempty"`      // end of agency.setup, if it succeeded
	SyncedCommit string     `json:"synced_commit,omitempty"` // commit of the integration branch that the last sync merged
	Landing      string     `json:"landing,omitempty"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"` // end of the last command; once the invocation has ended, its end

	ExitCode json.Number `json:"exit_code,omitempty"` // of the last command: see LastExitCode

	HasTrashArchive bool `json:"has_trash_archive,omitempty"` // trash/<id>.tar holds what the trash ref does not
	HadWalledGit    bool `json:"had_walled_git,omitempty"`    // at its end, the sandbox had git state behind its walls, which its commands may have written

	RunFields
	Submission
	LandingFields
}

// HasEnded reports whether the work of an invocation has landed or was discarded.
func (m InvocationMeta) HasEnded() bool { return HasEnded(m.Landing) }

// HasEnded reports whether the state of an invocation is final.
func HasEnded(landing string) bool { return landing == Landed || landing == Discarded }

// Submission holds the fields that review writes. Values of an earlier state stay when the state changes.
type Submission struct {
	SubmittedAt     *time.Time `json:"submitted_at,omitempty"` // with nanoseconds: work lands in this order
	SubmittedCommit string     `json:"submitted_commit,omitempty"`
	ReviewNote      string     `json:"review_note,omitempty"`
	RejectedAt      *time.Time `json:"rejected_at,omitempty"`
	RejectedReason  string     `json:"rejected_reason,omitempty"`
}

// LandingFields holds the fields that land and unland write.
type LandingFields struct {
	LandedAt       *time.Time `json:"landed_at,omitempty"`       // unlike finished_at, not changed when more of the sandbox is saved later
	LandedCommit   string     `json:"landed_commit,omitempty"`   // commit of the integration branch that contains the work
	LandedBefore   string     `json:"landed_before,omitempty"`   // tip of the integration branch before the landing
	LandedTip      string     `json:"landed_tip,omitempty"`      // tip of the sandbox's branch
	LandedBranch   string     `json:"landed_branch,omitempty"`   // integration branch, without refs/heads/
	LandedStrategy string     `json:"landed_strategy,omitempty"` // merge, squash or rebase; empty if nothing had to be merged
	CheckedAt      *time.Time `json:"looked_at,omitempty"`       // time of the last check of the sandbox; files written later may not have landed
	UnlandedCommit string     `json:"unlanded_commit,omitempty"` // commit that reverted the landing
	UnlandedAt     *time.Time `json:"unlanded_at,omitempty"`
}

// PathsFields holds the fields of a sandbox over plain directories, which belongs to no integration worktree.
type PathsFields struct {
	Paths     []PathMeta `json:"paths,omitempty"`      // its directories, in the order in which they were given; empty for a sandbox of a repository
	PathsBase string     `json:"paths_base,omitempty"` // commit of the files in them when it was started: the directory <n> of the commit is Paths[n]
}

// PathMeta is one directory of a sandbox over plain directories.
type PathMeta struct {
	Given string `json:"given"` // path as the user gave it, by which files are named
	Path  string `json:"path"`  // absolute path without symbolic links

	Copied string `json:"copied,omitempty"` // reason why commands see a copy of it: no overlay can be mounted on it. Empty if one can
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

// SoftwareHost is the software of this machine.
const SoftwareHost = "host"

// HasOtherRoot reports whether commands have another root file system than this machine.
func (p Primitives) HasOtherRoot() bool { return p.Software != "" && p.Software != SoftwareHost }

// NamesImage reports whether the software is an image of a container engine.
func (p Primitives) NamesImage() bool {
	return p.HasOtherRoot() && !strings.HasPrefix(p.Software, "/")
}

// PlatformLocal is the platform of runs that this machine executes.
const PlatformLocal = "local"

// IsLocal reports whether runs are executed by this machine.
func (p Primitives) IsLocal() bool { return p.Platform == "" || p.Platform == PlatformLocal }

// Limits bounds the resources of a sandbox's commands; zero means no limit.
type Limits struct {
	Memory     int64 `json:"memory,omitempty"`     // bytes, all processes together
	Processes  int   `json:"processes,omitempty"`  // including threads
	FileSize   int64 `json:"file_size,omitempty"`  // bytes
	TimeoutMS  int64 `json:"timeout_ms,omitempty"` // of each command
	Nice       int   `json:"nice,omitempty"`       // minimum nice value
	BestEffort bool  `json:"best_effort,omitempty"`
}

// Allowed is what was allowed to a sandbox after it was started, besides the values of Primitives.Outputs and Limits, and
// the values of these from before.
type Allowed struct {
	Grants
	OutputsBefore string  `json:"outputs_before,omitempty"` // outputs that the sandbox was started with; empty if they are the same
	LimitsBefore  *Limits `json:"limits_before,omitempty"`  // limits that it was started with; nil if they are the same
}

// Grants are paths outside of a sandbox that its commands may use.
type Grants struct {
	Read      []string `json:"read,omitempty"`
	Write     []string `json:"write,omitempty"` // with the prefix private: if only the sandbox sees the changes
	LinkNames []string `json:"names,omitempty"` // names with symbolic links by which paths of Read and Write were given
	Separate  []string `json:"-"`               // private paths of Write whose changes are those of no other path
	Copied    []string `json:"-"`               // those of Separate of which commands see a copy
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

// States of an integration worktree (Present, Archived), and review states of an invocation (the others). Only Landed
// and Discarded are final.
const (
	Present   = "present"
	Archived  = "archived"
	Review    = "review"
	Rejected  = "rejected"
	Landed    = "landed"
	Discarded = "discarded"
)

// problem describes why the record is invalid; it is empty for a valid record.
func (m InvocationMeta) problem() string {
	if b := m.IntegrationBranch; b != "" && !strings.HasPrefix(b, "refs/heads/") {
		return fmt.Sprintf("its integration_branch is %q, which is not below refs/heads/", b)
	}
	target := requiredField{"integration_worktree_id", m.IntegrationWorktreeID}
	if len(m.Paths) > 0 {
		target = requiredField{"paths_base", m.PathsBase}
	}
	return recordProblem(m.SchemaVersion, m.StartedAt, []requiredField{
		{"invocation_id", m.InvocationID},
		target,
		{"sandbox_path", m.SandboxPath},
		{"sandbox_branch", m.SandboxBranch},
		{"base_commit", m.BaseCommit},
		{"status", m.Status},
	})
}

// LastExitCode returns the exit code of the last command, or nil if there was none. A record of another version may have
// any number there, which must not make it unreadable.
func (m InvocationMeta) LastExitCode() *int {
	code, err := strconv.Atoi(m.ExitCode.String())
	if err != nil {
		return nil
	}
	return &code
}

// Grants returns the paths that were allowed to the sandbox after it was started.
func (m InvocationMeta) Grants() Grants {
	if m.Allowed == nil {
		return Grants{}
	}
	return m.Allowed.Grants
}

// WallGrants returns the paths outside of the sandbox that its commands may use: those that were allowed to it, and its plain
// directories, whose changes only the sandbox sees.
func (m InvocationMeta) WallGrants() Grants {
	g := m.Grants()
	g.Write = slices.Clone(g.Write)
	for _, p := range m.Paths {
		g.Write, g.Separate = append(g.Write, PrivatePrefix+p.Path), append(g.Separate, p.Path)
		if p.Copied != "" {
			g.Copied = append(g.Copied, p.Path)
		}
	}
	return g
}

// PrivatePrefix begins a grant of which only the sandbox sees the changes.
const PrivatePrefix = "private:"

func (m InvocationMeta) id() string { return m.InvocationID }
func (m InvocationMeta) startedAt() time.Time {
	if m.StartedAt.IsZero() {
		return m.StartedAt
	}
	return m.StartedAt.Add(time.Duration(m.StartedNS))
}

func (m WorktreeMeta) problem() string {
	return recordProblem(m.SchemaVersion, m.CreatedAt, []requiredField{
		{"worktree_id", m.WorktreeID},
		{"name", m.Name},
		{"repo_id", m.RepoID},
		{"tree_path", m.TreePath},
		{"state", m.State},
	})
}

func (m WorktreeMeta) id() string           { return m.WorktreeID }
func (m WorktreeMeta) startedAt() time.Time { return m.CreatedAt }

type requiredField struct{ name, value string }

func recordProblem(schema string, at time.Time, required []requiredField) string {
	if major, _, _ := strings.Cut(schema, "."); major != "1" {
		return fmt.Sprintf("schema_version is %q, not 1.x", schema)
	}
	if at.IsZero() {
		return "its time stamp is missing"
	}
	for _, f := range required {
		if f.value == "" {
			return f.name + " is missing"
		}
	}
	return ""
}
