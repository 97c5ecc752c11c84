// Package allow explains the walls of a sandbox, and widens them. It builds no walls: what it writes is the record, which
// the next command reads.
package allow

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Explanation says what the commands of a sandbox can read, write and reach, and why.
type Explanation struct {
	ID        string // empty for a sandbox that does not exist yet
	Isolation string
	Outputs   string
	Names     []string // of the walls
	Paths     []Path   // sorted by access, then by path
	Targets   []Target // what can be reached through the network
	Skipped   []error  // grants that are ignored
}

// Path is a path and how it appears in the sandbox.
type Path struct {
	Path    string
	Access  string
	Reason  string
	Detail  string
	Pending string // what it is not yet, because commands run behind older walls: "readable" or "writable"; else empty
}

// Target is a part of the network that can be reached.
type Target struct {
	Target  string
	Reason  string
	Detail  string
	Pending bool // not yet, because commands run behind older walls
}

// Kinds of access, in the order of Explanation.Paths.
const (
	Readable = "readable" // unchanged, read-only
	Writable = "writable" // unchanged, and writable
	Layered  = "layered"  // unchanged, and writable for the sandbox alone
	Private  = "private"  // empty at first, and writable
	Own      = "own"      // of the sandbox instead of the machine
	Copied   = "copied"   // a copy in the private home
	Filtered = "filtered" // read-only, without secrets
	Hidden   = "hidden"   // empty, or not there
)

var accessOrder = []string{Readable, Writable, Layered, Private, Own, Copied, Filtered, Hidden}

var accessOf = map[walls.Visibility]string{
	walls.ReadOnly: Readable, walls.KeptVisible: Readable, walls.MaskedAround: Readable, walls.FixedReadOnly: Readable,
	walls.Writable: Writable, walls.Overlaid: Layered, walls.Private: Private, walls.Replaced: Own, walls.Filtered: Filtered, walls.Hidden: Hidden,
}

// Reasons of targets.
const (
	reasonOutputs = "outputs" // chosen when the sandbox was started
	reasonAllow   = "allow"   // git agency allow --outputs
)

// Explain explains the walls of a sandbox; for an empty query, those of a sandbox that would be started now, with the
// defaults. It changes nothing, and works while commands run in the sandbox.
func Explain(ctx context.Context, r *core.Repository, query string) (Explanation, error) {
	if query == "" {
		prims, err := r.Settings.ChoosePrimitives(store.Primitives{}, "")
		if err != nil {
			return Explanation{}, err
		}
		return explain(sandbox.Placeholder(r), "", store.InvocationMeta{Primitives: prims}, nil)
	}
	inv, err := r.Invocation(query)
	if err != nil {
		return Explanation{}, err
	}
	if _, err := inv.Path(); err != nil {
		return Explanation{}, err
	}
	s := sandbox.Of(r, inv.ID)
	var running *walls.Plan
	if plan, found, err := s.RunningWalls(ctx); err != nil {
		r.Warn("sandbox %s: the walls of its running commands cannot be read: %v", inv.ID, err)
	} else if found {
		running = &plan
	}
	return explain(s, inv.ID, inv.Entry.Record, running)
}

// explain explains the walls of a sandbox with a record. running is the plan of the walls behind which commands run; nil if
// there are none.
func explain(s *sandbox.Sandbox, id string, m store.InvocationMeta, running *walls.Plan) (Explanation, error) {
	prims := settings.FillLegacyPrimitives(m.Primitives)
	all := Explanation{ID: id, Isolation: prims.Isolation, Outputs: prims.Outputs, Names: []string{}, Paths: []Path{}, Targets: []Target{}}
	e, err := s.ExplainWalls(sandbox.WallsRequest{Primitives: prims, Runner: m.Runner, Allowed: m.WallGrants()})
	if err != nil {
		return all, err
	}
	if e.Plan.Network == "" { // no walls
		all.Targets = explainNetwork(prims.Outputs, e.Rules, m.Allowed)
		return all, nil
	}
	all.Names = e.Plan.WallNames()
	own := s.Repo.Store.SandboxDir(s.Repo.ID, s.ID)
	add := func(path, access string, why walls.Reason, detail string) {
		p := Path{Path: path, Access: access, Reason: string(why), Detail: detail}
		if running != nil {
			p.Pending = running.Lacks(e.Plan, path)
		}
		if rest, below := strings.CutPrefix(path, own+"/"); below && id == "" {
			p.Path = filepath.Join(filepath.Dir(own), "<id>", rest)
		}
		all.Paths = append(all.Paths, p)
	}
	for _, p := range e.Paths {
		add(p.Path, accessOf[p.Visibility], p.Reason, e.Policy.Explain(p.Cause, m.Runner))
	}
	if len(e.Paths) > 0 {
		add(e.Caches, Writable, walls.ReasonCache, "caches of tools that have none in your home")
		add(e.State, Writable, walls.ReasonSandbox, "state of the sandbox's agent")
	}
	for _, f := range e.Copies {
		path := filepath.Join(e.Plan.Home.Path, f.Name)
		why, detail := e.Policy.ExplainCopy(path)
		add(path, Copied, why, detail)
	}
	slices.SortStableFunc(all.Paths, func(a, b Path) int {
		if a.Access != b.Access {
			return slices.Index(accessOrder, a.Access) - slices.Index(accessOrder, b.Access)
		}
		return strings.Compare(a.Path, b.Path)
	})
	for _, skipped := range e.Policy.Skipped {
		all.Skipped = append(all.Skipped, skipped)
	}
	all.Targets = explainNetwork(prims.Outputs, e.Rules, m.Allowed)
	for i, t := range all.Targets {
		all.Targets[i].Pending = running != nil && t.Target != loopback && (running.Network != e.Plan.Network || lacksRelay(*running, t.Target))
	}
	return all, nil
}

// loopback names the loopback of a sandbox.
const loopback = "loopback"

// lacksRelay reports whether walls lack a relay of an entry of outputs. Relays are fixed when walls are built.
func lacksRelay(running walls.Plan, entry string) bool {
	return slices.ContainsFunc(relaysOf(entry), func(r outlet.LoopbackRelay) bool { return !slices.Contains(running.Relayed, r.Inside.String()) })
}

// relaysOf returns the relays of one entry of outputs; none for what is no entry.
func relaysOf(entry string) []outlet.LoopbackRelay {
	rules, err := outlet.ParseRules(entry)
	if err != nil {
		return nil
	}
	return rules.LoopbackRelays()
}

// explainNetwork lists what outputs let a sandbox reach.
func explainNetwork(outputs string, rules outlet.Rules, allowed *store.Allowed) []Target {
	before := outputs
	if allowed != nil && allowed.OutputsBefore != "" {
		before = allowed.OutputsBefore
	}
	cause := func(was bool) (reason, detail string) {
		if was {
			return reasonOutputs, "--outputs of start, or its default"
		}
		return reasonAllow, "git agency allow --outputs"
	}
	if outputs == settings.OutputsOpen {
		reason, detail := cause(before == outputs)
		return []Target{{Target: "*", Reason: reason, Detail: "everything that this machine reaches: " + detail}}
	}
	targets := []Target{{Target: loopback, Reason: reasonOutputs, Detail: "of the sandbox alone; 'git agency ports' reaches ports there"}}
	if rules.String() == "" {
		return targets
	}
	hostsBefore, _ := outlet.ParseRules(strings.TrimPrefix(before, settings.HostsPrefix)) // those of a malformed value count as allowed later
	for entry := range strings.SplitSeq(rules.String(), ",") {
		reason, detail := cause(slices.Contains(strings.Split(hostsBefore.String(), ","), entry))
		how := "through a proxy: "
		if len(relaysOf(entry)) > 0 {
			how = "relayed to the loopback of this machine: "
		}
		targets = append(targets, Target{Target: entry, Reason: reason, Detail: how + detail})
	}
	return targets
}
