package platform

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Forget removes what an invocation has on a platform and in the hub, once it has ended: its refs in the hub, and what the engine keeps
// of its last job. What cannot be reached is a warning.
func (c *Client) Forget(ctx context.Context, id string) {
	m := c.record(id)
	if m.Primitives.IsLocal() || m.JobCommit == "" {
		return
	}
	if err := errors.Join(c.forgetHub(ctx, m), c.cleanUp(ctx, m)); err != nil {
		c.r.Warn("what is left of %s in the hub, and of its job %s at its engine, could not be removed: %v", id, ref(c.r, m).Name, err)
	}
}

// ForgetEnded calls Forget for the ended invocations that have a ref in this repository: an attempt that was still under way may have
// pushed it afterwards. It does not find results that arrive late in another hub.
func (c *Client) ForgetEnded(ctx context.Context) error {
	refs, err := c.r.Git.Refs(ctx, hub.JobsPrefix, hub.ResultsPrefix)
	if err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		id := strings.TrimPrefix(strings.TrimPrefix(ref, hub.JobsPrefix), hub.ResultsPrefix)
		if ids.Valid(id) && c.record(id).HasEnded() {
			c.Forget(ctx, id)
		}
	}
	return nil
}

// forgetHub deletes the refs of an invocation in the hub of its last run.
func (c *Client) forgetHub(ctx context.Context, m store.InvocationMeta) error {
	h, err := openHub(ctx, c.r, m.Hub, m.BaseCommit)
	if err == nil {
		err = c.keepLateResult(ctx, h, m)
	}
	if err != nil {
		return err
	}
	return h.Forget(ctx, m.InvocationID)
}

// keepLateResult keeps a result of the last run that came after its end was recorded as a snapshot: its ref in the hub is about to be
// deleted or moved.
func (c *Client) keepLateResult(ctx context.Context, h *hub.Hub, m store.InvocationMeta) error {
	if m.JobCommit == "" { // it had no run
		return nil
	}
	found, err := c.findResults(ctx, h, []store.InvocationMeta{m})
	late, is := found[m.InvocationID]
	if err != nil || !is {
		return err
	}
	number, err := c.receive(ctx, h, m, late.Commit)
	switch {
	case errors.Is(err, errOtherRun):
		return nil
	case isRefusal(c.r, err):
		c.r.Warn("the late result %s of %s was refused, and is not kept as a snapshot: %v", late.Commit, m.InvocationID, err)
		return nil
	case err == nil:
		c.r.Warn("a result of %s that came after its end is kept as snapshot %s/%d", m.InvocationID, m.InvocationID, number)
	}
	return err
}
