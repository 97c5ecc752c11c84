package gitagency

import "github.com/git-agency/git-agency/gitagency/internal/resolve"

// ResolveRequest says which agent resolves the conflicts of landings.
type ResolveRequest struct {
	Runner  string                // agent; empty: the agent of each invocation
	OnAgent func(ResolveProgress) // called before an agent is run, and after it has resolved the conflicts; may be nil
}

// ResolveProgress tells about an agent that resolves conflicts.
type ResolveProgress struct {
	ID       string
	Agent    string // runner, or program of a run without one
	Paths    int    // number of paths in conflict
	Resolved bool   // it has resolved them; false: it begins
}

func (req *ResolveRequest) internal() *resolve.Request {
	if req == nil {
		return nil
	}
	with := &resolve.Request{Runner: req.Runner}
	if req.OnAgent != nil {
		with.OnAgent = func(p resolve.Progress) { req.OnAgent(ResolveProgress(p)) }
	}
	return with
}

// ConfiguredResolve returns the request that agency.land.resolve makes; nil for none.
func (r *Repository) ConfiguredResolve() (*ResolveRequest, error) {
	on, runner, err := r.core.Settings.Resolver()
	if err != nil || !on {
		return nil, publicError(err)
	}
	return &ResolveRequest{Runner: runner}, nil
}
