package allow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Request says what to allow to a sandbox.
type Request struct {
	Invocation string // required: id or unique prefix

	Reset   bool     // first take back everything that was allowed since the start
	Outputs string   // "open", or "hosts:" with hosts to add; empty for no change
	Read    []string // paths to make readable; relative ones are relative to the directory of the caller
	Write   []string // paths to make writable; with the prefix private: for the sandbox alone
	Limits  confine.Limits
	DryRun  bool // check everything, and change nothing
}

// Result is what a sandbox is allowed after a change.
type Result struct {
	ID      string
	Changed bool // with DryRun: it would have changed
	Outputs string
	Read    []string
	Write   []string
	Limits  store.Limits
	Pending []string // what changes only when the commands have ended that run in the sandbox now: paths, and "--outputs"
}

// Allow widens what the commands of a sandbox may use, from the next command on. The change is recorded in the record of the
// invocation. It is refused to processes in a sandbox, and for an invocation that has ended.
func Allow(ctx context.Context, r *core.Repository, req Request) (Result, error) {
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return Result{}, err
	}
	if inside := proc.Getenv(r.Opts.Env, core.InvocationVariable); inside != "" {
		return Result{}, &fault.AllowInsideError{ID: inv.ID, Inside: inside}
	}
	_, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // the record may have changed while we waited for the lock
	if _, err := core.InvocationFromEntry(entry, nil).Path(); err != nil {
		return Result{}, err
	}
	changed, err := widen(ctx, r, entry.Record, req)
	if err != nil {
		return Result{}, err
	}
	s := sandbox.Of(r, entry.ID)
	grants := changed.Grants()
	done := Result{ID: entry.ID, Outputs: changed.Primitives.Outputs, Read: grants.Read, Write: grants.Write, Limits: changed.Limits, Changed: !sameAllowed(entry.Record, changed)}
	if done.Pending, err = pending(ctx, s, entry.Record, changed); err != nil {
		r.Warn("sandbox %s: the walls of its running commands cannot be read: %v", entry.ID, err)
	}
	if req.DryRun || !done.Changed {
		return done, nil
	}
	if err := record(ctx, r, entry, changed); err != nil {
		return Result{}, err
	}
	r.AppendEvent(entry.ID, allowEvent{
		Time: r.EventTime(), Event: "allow", Reset: req.Reset, Outputs: done.Outputs, Read: done.Read, Write: done.Write, Limits: done.Limits,
	})
	return done, nil
}

type allowEvent struct {
	Time    time.Time    `json:"time"`
	Event   string       `json:"event"`
	Reset   bool         `json:"reset,omitempty"`
	Outputs string       `json:"outputs"`
	Read    []string     `json:"read,omitempty"`
	Write   []string     `json:"write,omitempty"`
	Limits  store.Limits `json:"limits,omitzero"`
}

// record writes the changed fields. The rename of the record is the commit point.
func record(ctx context.Context, r *core.Repository, entry store.Entry[store.InvocationMeta], changed store.InvocationMeta) (err error) {
	set := func(to store.InvocationMeta) func(*store.InvocationMeta) {
		return func(m *store.InvocationMeta) {
			m.Primitives.Outputs, m.Limits, m.Allowed = to.Primitives.Outputs, to.Limits, to.Allowed
		}
	}
	tx := r.BeginTx("allow")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error { return r.Store.UpdateInvocationMeta(r.ID, entry.ID, set(entry.Record)) })
		return r.Store.UpdateInvocationMeta(r.ID, entry.ID, set(changed))
	}); err != nil {
		return fmt.Errorf("allow %s: %w", entry.ID, err)
	}
	tx.Commit()
	return nil
}

// sameAllowed reports whether two records allow the same.
func sameAllowed(a, b store.InvocationMeta) bool {
	had, has := a.Grants(), b.Grants()
	return a.Primitives.Outputs == b.Primitives.Outputs && a.Limits == b.Limits &&
		slices.Equal(had.Read, has.Read) && slices.Equal(had.Write, has.Write) && slices.Equal(had.LinkNames, has.LinkNames)
}

// pending lists what two records allow, and the walls behind which commands run do not have as the second record has it.
// Later commands join these walls, or are refused.
func pending(ctx context.Context, s *sandbox.Sandbox, before, after store.InvocationMeta) ([]string, error) {
	running, found, err := s.RunningWalls(ctx)
	if err != nil || !found {
		return nil, err
	}
	e, err := s.ExplainWalls(sandbox.WallsRequest{Primitives: after.Primitives, Runner: after.Runner, Allowed: after.WallGrants()})
	if err != nil || e.Plan.Network == "" { // without walls, there are none to join
		return nil, err
	}
	return findPending(running, e.Plan, before, after), nil
}

// findPending is pending for the plans of the running walls, and of those that the second record gets.
func findPending(running, next walls.Plan, before, after store.InvocationMeta) (lacking []string) {
	had := grantedPaths(before)
	for _, path := range appendNew(nil, slices.Concat(grantedPaths(after), had)) {
		real := cmp.Or(guard.ResolveOrEmpty(path), path)
		if running.Lacks(next, real) != "" || slices.Contains(had, path) && next.Lacks(running, real) != "" { // given, or taken back
			lacking = append(lacking, path)
		}
	}
	if running.Network != next.Network || !slices.Equal(running.Relayed, next.Relayed) {
		lacking = append(lacking, "--outputs")
	}
	return lacking
}

// grantedPaths returns the paths that a record grants.
func grantedPaths(m store.InvocationMeta) (paths []string) {
	for _, value := range slices.Concat(m.Grants().Read, m.Grants().Write) {
		paths = append(paths, strings.TrimPrefix(value, settings.PrivatePrefix))
	}
	return paths
}

// widen returns a record with what a request allows. It refuses what the walls could not give.
func widen(ctx context.Context, r *core.Repository, m store.InvocationMeta, req Request) (store.InvocationMeta, error) {
	m.Primitives = settings.FillLegacyPrimitives(m.Primitives)
	allowed := store.Allowed{}
	if m.Allowed != nil {
		allowed = *m.Allowed
	}
	if req.Reset {
		if allowed.OutputsBefore != "" {
			m.Primitives.Outputs = allowed.OutputsBefore
		}
		if allowed.LimitsBefore != nil {
			m.Limits = *allowed.LimitsBefore
		}
		allowed = store.Allowed{}
	}
	outputs, err := widenOutputs(m.Primitives.Outputs, req.Outputs)
	if err != nil {
		return m, err
	}
	if outputs != m.Primitives.Outputs {
		if allowed.OutputsBefore == "" {
			allowed.OutputsBefore = m.Primitives.Outputs
		}
		m.Primitives.Outputs = outputs
	}
	limits, err := widenLimits(ctx, r, m, req.Limits)
	if err != nil {
		return m, err
	}
	if limits != m.Limits {
		if allowed.LimitsBefore == nil {
			before := m.Limits
			allowed.LimitsBefore = &before
		}
		m.Limits = limits
	}
	g := granter{repo: r, sandbox: sandbox.Of(r, m.InvocationID), isolation: m.Primitives.Isolation}
	read, err := g.resolveAll(settings.ReadKey, req.Read)
	if err != nil {
		return m, err
	}
	write, err := g.resolveAll(settings.WriteKey, req.Write)
	if err != nil {
		return m, err
	}
	allowed.Read, allowed.Write, allowed.LinkNames = appendNew(allowed.Read, read), appendNew(allowed.Write, write), appendNew(allowed.LinkNames, g.linkNames)
	m.Allowed = &allowed
	if allowed.OutputsBefore == "" && allowed.LimitsBefore == nil && len(allowed.Read)+len(allowed.Write) == 0 {
		m.Allowed = nil
	}
	return m, g.check(m, read, write)
}

// appendNew appends the values that a list lacks, and leaves the list itself unchanged.
func appendNew(list, values []string) []string {
	list = slices.Clone(list)
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
