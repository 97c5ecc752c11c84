package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Limits bound the resources of the commands of a sandbox. A zero field is no limit.
type Limits = sandbox.Limits

// RecordedLimits are the limits that a sandbox was started with, as written in its record.
type RecordedLimits = sandbox.RecordedLimits

// EnforcedLimit tells how a limit is enforced. One with a Detail is not enforced, or not in full.
type EnforcedLimit = sandbox.EnforcedLimit

// LimitKind names one of the limits.
type LimitKind = sandbox.LimitKind

// Kinds of limits.
const (
	MemoryLimit   = sandbox.MemoryLimit
	ProcessLimit  = sandbox.ProcessLimit
	FileSizeLimit = sandbox.FileSizeLimit
	TimeoutLimit  = sandbox.TimeoutLimit
	NiceLimit     = sandbox.NiceLimit
)

// ParseSize parses a number of bytes, with the suffixes k, m, g and t for powers of 1024.
func ParseSize(s string) (int64, error) {
	return sandbox.ParseSize(s)
}

// ParseProcesses parses a maximum number of processes and threads.
func ParseProcesses(s string) (int, error) {
	return sandbox.ParseProcesses(s)
}

// ParseNice parses a nice value. Only positive values are valid: a lower niceness needs privileges that commands in a
// sandbox never get.
func ParseNice(s string) (int, error) {
	return sandbox.ParseNice(s)
}

// FormatSize formats a number of bytes for people, without rounding.
func FormatSize(n int64) string {
	return sandbox.FormatSize(n)
}

// Primitives are the five independent choices made when a sandbox starts.
type Primitives = settings.Primitives

// DefaultPrimitives returns the primitives of a sandbox for which nothing was chosen.
func DefaultPrimitives() Primitives {
	return settings.DefaultPrimitives()
}

// PrimitiveValues lists the values of a primitive that can be built, the default first.
func PrimitiveValues(name string) []string {
	return settings.PrimitiveValues(name)
}

// StartRequest describes the sandbox to create.
type StartRequest = sandbox.StartRequest

// Start creates an invocation and its sandbox, or fails and leaves nothing. It runs nothing in the sandbox.
func (r *Repository) Start(ctx context.Context, req StartRequest) (Invocation, error) {
	return sandbox.Start(ctx, r.core, req)
}
