package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/allow"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// Walls says what the commands of a sandbox can read, write and reach, and why.
type Walls struct {
	ID        string       `json:"invocation_id"` // empty for a sandbox that does not exist yet
	Isolation string       `json:"isolation"`
	Outputs   string       `json:"outputs"`
	Names     []string     `json:"walls"`   // names of the walls, as in ExecResult.Walls; none with isolation none and outputs open
	Paths     []WallPath   `json:"paths"`   // sorted by access, then by path; of nested paths, the lowest decides
	Targets   []WallTarget `json:"targets"` // what can be reached through the network
	Skipped   []string     `json:"skipped"` // grants that are ignored, and why
}

// WallPath is a path, how it appears in a sandbox, and why.
type WallPath struct {
	Path   string `json:"path"`
	Access string `json:"access"` // "readable", "writable", "layered", "private", "own", "copied", "filtered" or "hidden"
	Reason string `json:"reason"` // stable name of the reason
	Detail string `json:"detail"` // the reason in words

	// Pending is "readable" or "writable" if it is that only when the commands have ended that run in the sandbox now,
	// behind older walls; else empty.
	Pending string `json:"pending"`
}

// WallTarget is a part of the network that can be reached, and why.
type WallTarget struct {
	Target  string `json:"target"` // entry of the outputs, "loopback", or "*" for everything
	Reason  string `json:"reason"` // "outputs" or "allow"
	Detail  string `json:"detail"` // the reason in words
	Pending bool   `json:"pending"`
}

func newWalls(e allow.Explanation) Walls {
	w := Walls{
		ID: e.ID, Isolation: e.Isolation, Outputs: e.Outputs, Names: e.Names,
		Paths:   convertAll(e.Paths, func(p allow.Path) WallPath { return WallPath(p) }),
		Targets: convertAll(e.Targets, func(t allow.Target) WallTarget { return WallTarget(t) }), Skipped: []string{},
	}
	for _, err := range e.Skipped {
		w.Skipped = append(w.Skipped, err.Error())
	}
	return w
}

// Walls explains the walls of a sandbox; for an empty query, those of a sandbox that would be started now with the defaults.
// It changes nothing.
func (r *Repository) Walls(ctx context.Context, query string) (Walls, error) {
	e, err := allow.Explain(ctx, r.core, query)
	return newWalls(e), publicError(err)
}

// AllowRequest says what to allow to a sandbox.
type AllowRequest struct {
	Invocation string // required: id or unique prefix

	Reset   bool     // first take back everything that was allowed since the start
	Outputs string   // "open", or "hosts:" with hosts to add; empty for no change
	Read    []string // paths to make readable; relative ones are relative to the directory of the caller
	Write   []string // paths to make writable; with the prefix private: for the sandbox alone
	Limits  Limits   // limits to widen; a timeout below zero removes it
	DryRun  bool     // check everything, and change nothing
}

// AllowResult is what a sandbox is allowed after Allow.
type AllowResult struct {
	ID      string   `json:"invocation_id"`
	Changed bool     `json:"changed"` // with DryRun: it would have changed
	Outputs string   `json:"outputs"`
	Read    []string `json:"allowed_read"`
	Write   []string `json:"allowed_write"`
	Limits  Limits   `json:"limits,omitzero"`

	// Pending lists what changes only when the commands have ended that run in the sandbox now: paths, and "--outputs".
	// Until then, other commands join them as they are, or are refused.
	Pending []string `json:"pending"`
}

// Allow widens what the commands of a sandbox may read, write, reach and use, from the next command on. Paths are refused
// with reason.Grant, and a call from inside of a sandbox with reason.AllowInside.
func (r *Repository) Allow(ctx context.Context, req AllowRequest) (AllowResult, error) {
	done, err := allow.Allow(ctx, r.core, req.internal())
	return newAllowResult(done), publicError(err)
}

func (req AllowRequest) internal() allow.Request {
	return allow.Request{
		Invocation: req.Invocation, Reset: req.Reset, Outputs: req.Outputs, Read: req.Read, Write: req.Write, Limits: req.Limits.internal(), DryRun: req.DryRun,
	}
}

func newAllowResult(done allow.Result) AllowResult {
	return AllowResult{
		ID: done.ID, Changed: done.Changed, Outputs: done.Outputs, Read: append([]string{}, done.Read...), Write: append([]string{}, done.Write...),
		Limits: newLimits(sandbox.LimitsFromRecord(done.Limits)), Pending: append([]string{}, done.Pending...),
	}
}
