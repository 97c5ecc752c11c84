package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
)

// Capability is a feature that this machine has or lacks.
type Capability = doctor.Capability

// States of a capability.
const (
	CapabilityOK      = doctor.CapabilityOK
	CapabilityMissing = doctor.CapabilityMissing
	CapabilityUnknown = doctor.CapabilityUnknown // could not be probed
)

// Capabilities reports the features of this machine: its git, the kernel features that walls are built from, and the
// coding agents on PATH or named by agency.<runner>.command. It probes every kernel feature by using it, and leaves
// nothing behind. A missing feature is no error; its detail says which options do not work without it.
func (r *Repository) Capabilities(ctx context.Context) ([]Capability, error) {
	return doctor.Capabilities(ctx, r.core)
}

// Finding is one problem that Diagnose found.
type Finding = doctor.Finding

// Diagnosis is the result of Diagnose.
type Diagnosis = doctor.Diagnosis

// Diagnose checks a repository, its records and its trees for every known problem, and changes nothing. A result returned
// with an error holds the findings so far.
func (r *Repository) Diagnose(ctx context.Context) (Diagnosis, error) {
	return doctor.Diagnose(ctx, r.core)
}

// Fix fixes everything that was found under one id, and returns those findings. It finishes or undoes interrupted
// operations and never loses work: a ref keeps everything that it removes.
func (r *Repository) Fix(ctx context.Context, id string) ([]Finding, error) {
	return doctor.Fix(ctx, r.core, id)
}

// FindingCodes lists every code that a finding can have.
func FindingCodes() []string {
	return doctor.FindingCodes()
}
