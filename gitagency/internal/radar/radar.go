// Package radar predicts which sandboxes conflict with their integration branch and with each other. It merges in memory
// and changes nothing but its cache.
package radar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
)

// Result is the result of Radar: which sandboxes conflict with the integration branch and with each other.
type Result struct {
	Sandboxes []Sandbox `json:"sandboxes"` // oldest first
	Pairs     []Pair    `json:"pairs"`     // every two sandboxes that could be read
}

// Sandbox says what would happen if the whole content of a sandbox were landed now.
type Sandbox struct {
	ID    string   `json:"invocation_id"`
	Name  string   `json:"invocation_name"`
	State State    `json:"state"`
	Clean bool     `json:"clean"`           // no conflicts; also if there is nothing to land
	Paths []string `json:"paths"`           // paths in conflict with the integration branch
	Error string   `json:"error,omitempty"` // why it could not be read, or is refused

	Task          string `json:"-"` // first line of its task
	BranchMissing bool   `json:"-"` // the branch that it lands on does not exist any more
}

// Pair says what would happen if the contents of two sandboxes were merged now: of two that would each land cleanly,
// whether the second still could after the first.
type Pair struct {
	A     string   `json:"a"`
	B     string   `json:"b"`
	Clean bool     `json:"clean"`
	Paths []string `json:"paths"` // paths in conflict with each other
}

// State is the predicted result of a landing.
type State string

// Predicted results.
const (
	Clean     State = "clean"
	Conflicts State = "conflicts"
	Nothing   State = "nothing" // nothing to land
	Refused   State = "refused" // it contains objects or files that must not land
	Error     State = "error"   // it could not be read
)

// ConflictCount returns the number of other sandboxes that a sandbox conflicts with.
func (r Result) ConflictCount(id string) int {
	n := 0
	for _, p := range r.Pairs {
		if !p.Clean && (p.A == id || p.B == id) {
			n++
		}
	}
	return n
}

// Summary describes a sandbox in one word: its state, with the number of conflicting paths; or "rivals" with the number of
// other sandboxes that it conflicts with, if nothing else prevents its landing.
func (r Result) Summary(s Sandbox) string {
	switch rivals := r.ConflictCount(s.ID); {
	case s.State == Conflicts:
		return fmt.Sprintf("%s(%d)", s.State, len(s.Paths))
	case s.State == Clean && rivals > 0:
		return fmt.Sprintf("rivals(%d)", rivals)
	}
	return string(s.State)
}

// Fill sets the Radar field of every live invocation to its summary. Worktrees that fail are reported as warnings.
func Fill(ctx context.Context, r *core.Repository, invocations []core.Invocation) error {
	found := map[string]Result{}
	for i := range invocations {
		inv := &invocations[i]
		if !inv.Broken && inv.Entry.Record.HasEnded() || inv.WorktreeID == "" || inv.Verifies != "" {
			continue
		}
		radar, known := found[inv.WorktreeID]
		if !known {
			var err error
			radar, err = Compute(ctx, r, inv.WorktreeID)
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if err != nil {
				r.Warn("radar of worktree %s: %v", inv.WorktreeID, err)
			}
			found[inv.WorktreeID] = radar
		}
		inv.Radar = string(Error)
		for _, s := range radar.Sandboxes {
			if s.ID == inv.ID {
				inv.Radar = radar.Summary(s)
			}
		}
	}
	return nil
}

// Compute predicts, for every live sandbox of an integration worktree, whether its current content would land cleanly on the
// current integration branch, and which two sandboxes would conflict with each other. It skips temporary sandboxes that
// verify a landing. The worktree is found as by Worktree. Uncommitted work counts as if it were committed on top of HEAD:
// tracked, staged and untracked files, but neither ignored files nor files that look like credentials.
//
// Compute changes nothing but the cache, and commands may run meanwhile; changes made during the scan may be included or
// not. It ignores configuration and attributes that an agent could have written, and runs nothing that they name. A
// sandbox that cannot be read has an Error and is in no pair; the others are not affected.
func Compute(ctx context.Context, r *core.Repository, worktree string) (_ Result, err error) {
	wt, err := r.Worktree(worktree)
	if err != nil {
		return Result{}, err
	}
	invocations, err := r.Invocations(core.ListRequest{All: true})
	if err != nil {
		return Result{}, err
	}
	forecasts, err := openForecasts(ctx, r, wt, invocations)
	defer func() {
		for _, f := range forecasts {
			err = errors.Join(err, f.close())
		}
	}()
	if err != nil {
		return Result{}, err
	}
	found := Result{Sandboxes: []Sandbox{}, Pairs: []Pair{}}
	for _, f := range forecasts {
		if f.merger == nil { // without a branch there is nothing to merge with
			found.Sandboxes = append(found.Sandboxes, f.result().Sandboxes...)
			continue
		}
		if err := f.compute(ctx); err != nil {
			return Result{}, err
		}
		if err := f.findChangedSubmodules(ctx); err != nil {
			return Result{}, err
		}
		part := f.result()
		found.Sandboxes, found.Pairs = append(found.Sandboxes, part.Sandboxes...), append(found.Pairs, part.Pairs...)
		if err := f.saveFacts(); err != nil {
			r.Warn("the results of radar could not be cached: %v", err)
		}
	}
	if err := pruneCache(r, wt, forecasts, invocations); err != nil {
		r.Warn("the cache of radar could not be cleaned up: %v", err)
	}
	order := map[string]int{}
	for i, inv := range invocations {
		order[inv.ID] = i
	}
	slices.SortStableFunc(found.Sandboxes, func(a, b Sandbox) int { return order[a.ID] - order[b.ID] })
	return found, nil
}

// openForecasts opens a forecast for each branch that live sandboxes of a worktree land on. It also returns the opened ones
// with an error; the caller closes them.
func openForecasts(ctx context.Context, r *core.Repository, wt core.Worktree, invocations []core.Invocation) (forecasts []*forecast, err error) {
	var names []string
	groups := map[string][]core.Invocation{}
	for _, inv := range invocations {
		if inv.WorktreeID != wt.ID || inv.Verifies != "" || !inv.Broken && inv.Entry.Record.HasEnded() {
			continue
		}
		name, err := r.IntegrationRev(ctx, wt, inv.IntegrationBranch)
		if err != nil {
			return nil, err
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], inv)
	}
	for _, name := range names {
		f, err := newForecast(ctx, r, wt, name, groups[name])
		if err != nil {
			return forecasts, err
		}
		forecasts = append(forecasts, f)
	}
	return forecasts, nil
}

// result returns the public result of the forecast.
func (s *forecast) result() Result {
	found := Result{Sandboxes: []Sandbox{}, Pairs: []Pair{}}
	for i, b := range s.sandboxes {
		sandbox := Sandbox{ID: b.inv.ID, Name: b.inv.Name, Task: b.inv.Task, State: Error, Paths: []string{}}
		if b.err != nil {
			sandbox.Error, sandbox.BranchMissing = b.err.Error(), fault.Is[*fault.MissingBranchError](b.err)
			if fault.Is[*fault.InvalidTreeError](b.err) {
				sandbox.State = Refused
			}
		} else {
			m := s.facts.Merges[s.mergeKey(integrationPair(i))]
			sandbox.Paths, sandbox.Clean = m.paths(), m.clean()
			refused := cmp.Or(s.notImported(b), s.facts.Refused[s.fsckKey(i)])
			switch {
			case refused != "":
				sandbox.State, sandbox.Clean, sandbox.Error = Refused, false, refused
			case !sandbox.Clean:
				sandbox.State = Conflicts
			case m.NothingNew && !b.changedSubmodule:
				sandbox.State = Nothing
			default:
				sandbox.State = Clean
			}
		}
		found.Sandboxes = append(found.Sandboxes, sandbox)
	}
	for _, p := range s.pairs() {
		if !p.withIntegration() {
			m := s.facts.Merges[s.mergeKey(p)]
			found.Pairs = append(found.Pairs, Pair{A: s.sandboxes[p.a].inv.ID, B: s.sandboxes[p.b].inv.ID, Clean: m.clean(), Paths: m.paths()})
		}
	}
	return found
}

// notImported returns why the commits behind the walls of a sandbox were refused, so that it cannot land; empty if they
// were not.
func (s *forecast) notImported(b *sandboxState) string {
	refused, err := handoff.SavedRefusal(s.r, b.inv.ID)
	if err != nil {
		return err.Error()
	}
	if refused == nil {
		return ""
	}
	return refused.Error()
}

func (m mergeFact) paths() []string {
	paths := []string{}
	for _, p := range m.Conflicts {
		paths = append(paths, string(p))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
