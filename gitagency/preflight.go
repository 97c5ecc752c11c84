package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/preflight"
)

// PreflightRequest describes a run of an agent to check.
type PreflightRequest struct {
	Start    StartRequest // sandbox that would be created
	Argv     []string     // command line that would run instead of the runner of Start; may be empty
	Headless bool         // no person would be at a terminal
	Version  bool         // report versions: run the agent with --version, which may take a second, and ask the engine
	Online   bool         // connect to the hosts that the agent needs
}

func (req PreflightRequest) internal() preflight.Request {
	return preflight.Request{Start: req.Start.internal(), Argv: req.Argv, Headless: req.Headless, Version: req.Version, Online: req.Online}
}

// PreflightReport is the result of all checks of a preflight.
type PreflightReport struct {
	OK     bool             `json:"ok"` // no check failed
	Checks []PreflightCheck `json:"checks"`
}

// PreflightCheck is the result of one check.
type PreflightCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason"` // what was found
	Remedy string `json:"remedy"` // what to type or do; empty if the check passed, or if Err says what failed
	Err    error  `json:"-"`      // error with which a run would have ended; nil if there is none
}

func newPreflightReport(r preflight.Report) PreflightReport {
	return PreflightReport{OK: r.OK, Checks: convertAll(r.Checks, newPreflightCheck)}
}

func newPreflightCheck(c preflight.Check) PreflightCheck {
	return PreflightCheck{Name: c.Name, OK: c.OK, Reason: c.Reason, Remedy: c.Remedy, Err: publicError(c.Err)}
}

// Err returns a *PreflightError with the checks that failed; nil if none did.
func (r PreflightReport) Err() error {
	internal := preflight.Report{OK: r.OK, Checks: convertAll(r.Checks, func(c PreflightCheck) preflight.Check { return preflight.Check(c) })}
	return publicError(internal.Err())
}

// Preflight checks whether a sandbox can be created and an agent can work in it. Every check runs, at the same time as the
// others; none creates or changes anything, or sends anything without Online. Checks that the user set as
// agency.preflight.<name> run on this machine, outside of walls. An error is not about the results: the request is
// malformed, or names a worktree or snapshot that does not exist.
func (r *Repository) Preflight(ctx context.Context, req PreflightRequest) (PreflightReport, error) {
	report, err := preflight.Run(ctx, r.core, req.internal())
	return newPreflightReport(report), publicError(err)
}
