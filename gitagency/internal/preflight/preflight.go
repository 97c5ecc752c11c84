// Package preflight checks, before an agent is run, whether its sandbox can be built and whether the agent can work in it.
// Every check runs, and each result says why and what to type. It must never create or change anything, and it sends
// nothing unless the request says so.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Request describes the run to check.
type Request struct {
	Start    creation.Request // sandbox that would be created
	Argv     []string         // command line that would run instead of the runner of Start; may be empty
	Headless bool             // no person would be at a terminal
	Version  bool             // report versions: run the agent of the table with --version, which may take a second, and ask the engine
	Online   bool             // connect to the hosts that the agent needs
	Existing bool             // the sandbox exists: what its creation needs is not checked
}

// Report is the result of all checks.
type Report struct {
	OK     bool
	Checks []Check
}

// Check is the result of one check.
type Check struct {
	Name   string
	OK     bool
	Reason string // what was found
	Remedy string // command to type or thing to do; empty if the check is OK or Err says more
	Err    error  // error that the command would have ended with; nil if there is none
}

// FailedError reports checks that failed, so that no agent was run.
type FailedError struct{ Checks []Check }

func (e *FailedError) Error() string {
	failed := make([]string, len(e.Checks))
	for i, c := range e.Checks {
		failed[i] = fmt.Sprintf("%s (%s)", c.Name, c.Reason)
	}
	return "preflight failed: " + strings.Join(failed, ", ")
}

// Add adds the checks of another agent, each different result once.
func (r *Report) Add(other Report) {
	r.OK = r.OK && other.OK
	for _, c := range other.Checks {
		if !slices.ContainsFunc(r.Checks, func(had Check) bool {
			return had.Name == c.Name && had.OK == c.OK && had.Reason == c.Reason && had.Remedy == c.Remedy
		}) {
			r.Checks = append(r.Checks, c)
		}
	}
}

// Err returns a *FailedError with the checks that failed; nil if none did.
func (r Report) Err() error {
	if r.OK {
		return nil
	}
	e := &FailedError{}
	for _, c := range r.Checks {
		if !c.OK {
			e.Checks = append(e.Checks, c)
		}
	}
	return e
}

// Run runs all checks. The error is not about their results: it is a malformed request, a worktree or snapshot that does
// not exist, or the end of ctx.
func Run(ctx context.Context, r *core.Repository, req Request) (Report, error) {
	return run(ctx, r, req, runner.FindSpec)
}

// run is Run with a table of agents.
func run(ctx context.Context, r *core.Repository, req Request, findSpec func(name string) (runner.Spec, bool)) (Report, error) {
	s, err := newSubject(r, req, findSpec)
	if err != nil {
		return Report{}, err
	}
	s.image = sync.OnceValue(func() (found foundImage) {
		found.engine, found.image, found.err = sandbox.FindImage(ctx, r, s.prims)
		return found
	})
	s.base = sync.OnceValues(func() (base, error) { return findBase(ctx, s) })
	checks, err := s.checks()
	if err != nil {
		return Report{}, err
	}
	report := Report{OK: true, Checks: make([]Check, len(checks))}
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() {
			res := c.run(ctx, s)
			report.Checks[i] = Check{Name: c.name, OK: !res.failed, Reason: res.reason, Remedy: res.remedy, Err: res.err}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return Report{}, err
	}
	for _, c := range report.Checks {
		if isRequestError(c.Err) {
			return Report{}, c.Err
		}
		report.OK = report.OK && c.OK
	}
	return report, nil
}

// isRequestError reports whether an error is about a value that the caller gave, and not about the machine, the repository
// or its settings.
func isRequestError(err error) bool {
	var invalid *fault.InvalidError
	return errors.As(err, &invalid) && invalid.ConfigKey == "" || fault.Is[*fault.NotFoundError](err) || fault.Is[*fault.AmbiguousError](err)
}

// check is one check: its name, and the function that makes it. Checks run at the same time.
type check struct {
	name string
	run  func(ctx context.Context, s *subject) result
}

// result is the finding of a check.
type result struct {
	failed bool
	reason string
	remedy string
	err    error
}

func passed(format string, args ...any) result { return result{reason: fmt.Sprintf(format, args...)} }

// failedBy returns the result of a check that an error fails. The error has its own hints.
func failedBy(err error) result { return result{failed: true, reason: err.Error(), err: err} }

// checks lists the checks of a request in the order in which they are reported.
func (s *subject) checks() ([]check, error) {
	checks := []check{
		{"base", checkBase},
		{"walls", checkWalls},
		{"limits", checkLimits},
		{"paths", checkPaths},
		{"runner", checkRunner},
		{"login", checkLogin},
		{"hosts", checkHosts},
		{"prompts", checkPrompts},
		{"identity", checkIdentity},
		{"disk", checkDisk},
	}
	if s.prims.HasOtherRoot() {
		checks = slices.Insert(checks, 1, check{"software", checkSoftware})
	}
	if s.runsOnPlatform() {
		checks = platformChecks()
	}
	if s.req.Existing {
		checks = withoutChecks(checks, "base", "limits", "paths")
	}
	if s.req.Online && !s.runsOnPlatform() {
		checks = append(checks, check{"online", checkOnline})
	}
	own, err := s.ownChecks()
	return append(checks, own...), err
}

// subject has the data that all checks share.
type subject struct {
	repo  *core.Repository
	req   Request
	agent agent

	prims    store.Primitives // as the sandbox would have them
	primsErr error            // *fault.UnsupportedError of one that cannot be built; prims then has defaults

	plan func() (sandbox.ExplainedWalls, error) // walls of the sandbox
	base func() (base, error)                   // commit that the sandbox would start from

	image func() foundImage // image that the software names
}

func newSubject(r *core.Repository, req Request, findSpec func(name string) (runner.Spec, bool)) (*subject, error) {
	s := &subject{repo: r, req: req, agent: findAgent(r, req, findSpec)}
	s.prims, s.primsErr = r.Settings.ChoosePrimitives(req.Start.Primitives, req.Start.Profile)
	if s.primsErr != nil {
		if !fault.Is[*fault.UnsupportedError](s.primsErr) {
			return nil, s.primsErr
		}
		s.prims = settings.DefaultPrimitives()
		if asked := req.Start.Primitives.Outputs; asked != "" {
			s.prims.Outputs = asked
		}
	}
	if err := sandbox.CheckOutputs(s.prims.Outputs); err != nil {
		return nil, err
	}
	quiet := r.WithWarn(nil) // Start has the same warnings
	s.plan = sync.OnceValues(func() (sandbox.ExplainedWalls, error) {
		prims := s.pinned()
		if sandbox.CheckSoftware(r, prims) != nil { // it is missing, or not unpacked, of which checkSoftware tells
			prims.Software = store.SoftwareHost
		}
		return sandbox.Placeholder(quiet).ExplainWalls(sandbox.WallsRequest{Primitives: prims, Runner: req.Start.Runner})
	})
	return s, nil
}
