package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
)

// Diagnosis is the result of Diagnose.
type Diagnosis struct {
	Findings      []Finding `json:"findings"`
	ActiveProcess string    `json:"busy"` // process that was changing the repository meanwhile, whose traces are not reported; else empty

	Capabilities []Capability `json:"machine"`
	Refusals     []Refusal    `json:"refusals"` // commits and files of sandboxes that were refused; these are no problems
}

func newDiagnosis(d doctor.Diagnosis) Diagnosis {
	return Diagnosis{Findings: convertAll(d.Findings, newFinding), ActiveProcess: d.ActiveProcess, Capabilities: convertAll(d.Capabilities, newCapability), Refusals: convertAll(d.Refusals, newRefusal)}
}

// Refusal is why the last command that tried did not import the commits of a sandbox, or did not read or keep its files.
type Refusal struct {
	ID     string `json:"invocation_id"`
	What   string `json:"what"` // RefusedCommits or RefusedFiles
	Reason string `json:"reason"`
	Remedy string `json:"remedy"` // commands to type
}

// What a sandbox has that was refused.
const (
	RefusedCommits = "commits"
	RefusedFiles   = "files"
)

func newRefusal(r doctor.Refusal) Refusal { return Refusal(r) }

// Finding is one problem that Diagnose found.
type Finding struct {
	Code       string `json:"code"` // stable identifier
	ID         string `json:"id"`   // argument for Fix: an invocation id, a worktree id, or a path in the git directory
	Path       string `json:"path"`
	Problem    string `json:"what"`         // description for people, part of a sentence
	AtRisk     bool   `json:"work_at_risk"` // a wrong step could lose work that is stored nowhere else
	FixCommand string `json:"mend"`         // command that fixes it
	Outcome    string `json:"outcome"`      // state after Fix; empty if only a person can fix it
}

func newFinding(f doctor.Finding) Finding {
	return Finding{Code: f.Code, ID: f.ID, Path: f.Path, Problem: f.Problem, AtRisk: f.AtRisk, FixCommand: f.FixCommand, Outcome: f.Outcome}
}

// Diagnose checks a repository, its records and its trees for every known problem, and changes nothing. A result returned
// with an error holds the findings so far.
func (r *Repository) Diagnose(ctx context.Context) (Diagnosis, error) {
	diagnosis, err := doctor.Diagnose(ctx, r.core)
	return newDiagnosis(diagnosis), publicError(err)
}

// Fix fixes everything that was found under one id, and returns those findings. It finishes or undoes interrupted
// operations and never loses work: a ref keeps everything that it removes.
func (r *Repository) Fix(ctx context.Context, id string) ([]Finding, error) {
	fixed, err := doctor.Fix(ctx, r.core, id)
	return convertAll(fixed, newFinding), publicError(err)
}

// Capability is a feature that this machine has or lacks.
type Capability struct {
	Name   string `json:"name"`
	State  string `json:"state"` // one of the Capability constants
	Detail string `json:"detail"`
}

// States of a capability.
const (
	CapabilityOK      = "ok"
	CapabilityMissing = "missing"
	CapabilityUnknown = "unknown" // could not be probed
)

func newCapability(c doctor.Capability) Capability { return Capability(c) }

// Capabilities reports the features of this machine: its git, the kernel features that walls are built from, the walls
// around the git that reads data of sandboxes, and the coding agents on PATH or named by agency.<runner>.command. It probes every kernel feature by using it, and leaves
// nothing behind. A missing feature is no error; its detail says which options do not work without it.
func (r *Repository) Capabilities(ctx context.Context) ([]Capability, error) {
	capabilities, err := doctor.Capabilities(ctx, r.core)
	return convertAll(capabilities, newCapability), publicError(err)
}
