package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// ExplainedWalls are planned walls, and why they are as they are.
type ExplainedWalls struct {
	Plan   walls.Plan
	Paths  []walls.Explained // sorted; none if only the network is restricted
	Copies []copies.File     // files that the private home has a copy of
	Caches string            // directory of the sandbox for caches that the host does not have
	State  string            // directory of the sandbox for the state of its agent
	Rules  outlet.Rules      // allowed hosts
	Policy settings.Policy
}

// ExplainWalls plans the walls around the next command in the sandbox, and changes nothing. Running walls may differ.
func (s *Sandbox) ExplainWalls(asked WallsRequest) (ExplainedWalls, error) {
	if !NeedsWalls(asked.Primitives) {
		return ExplainedWalls{}, nil
	}
	e := ExplainedWalls{Caches: s.cachesDir(), State: s.AgentStateDir()}
	w, err := s.planWalls(asked, func(r walls.Request, m walls.Machine) (plan walls.Plan, err error) {
		plan, e.Paths, err = walls.Explain(r, m)
		return plan, err
	})
	e.Plan, e.Copies, e.Rules, e.Policy = w.plan, w.homeFiles, w.rules, w.policy
	return e, AttributeToSetting(s.Repo, err)
}

// RunningWalls returns the plan of the walls behind which commands run in the sandbox, which later commands join; found is
// false if there are none.
func (s *Sandbox) RunningWalls(ctx context.Context) (plan walls.Plan, found bool, err error) {
	ns, err := proc.ObserveNamespace(ctx, s.Repo.Store.InvocationDir(s.Repo.ID, s.ID))
	if errors.Is(err, proc.ErrNoNamespace) {
		return plan, false, nil
	}
	if err != nil {
		return plan, false, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	plan, err = decodePlan(ns)
	return plan, true, err
}

// decodePlan returns the plan of the walls that exist, with the paths that their overlays omit.
func decodePlan(ns *proc.Namespace) (plan walls.Plan, err error) {
	if err := json.Unmarshal(ns.Plan, &plan); err != nil {
		return plan, err
	}
	for _, l := range plan.Overlays {
		omitted, err := overlay.Omitted(l.Upper, l.Path)
		if err != nil {
			return plan, err
		}
		plan.Omitted = append(plan.Omitted, omitted...)
	}
	return plan, nil
}

// warnNotInForce warns about grants that the walls which this command has joined do not have.
func (w Walls) warnNotInForce(s *Sandbox) {
	for _, path := range slices.Concat(w.policy.Read, w.policy.Write, w.policy.OverlayWrite) {
		if lacking := w.applied.Lacks(w.plan, path); lacking != "" {
			s.Repo.Warn("%s is not %s yet: commands run in sandbox %s behind walls that were built before this was granted; wait until they end", path, lacking, s.ID)
		}
	}
}
