package gitagency

import "github.com/git-agency/git-agency/gitagency/internal/core"

// Invocation is one piece of agent work: an id, a record, a sandbox.
type Invocation = core.Invocation

// ListRequest selects the invocations to list.
type ListRequest = core.ListRequest

// Invocations lists invocations, oldest first.
func (r *Repository) Invocations(req ListRequest) ([]Invocation, error) {
	return r.core.Invocations(req)
}

// Invocation finds an invocation by its id or a unique prefix of it, never by its name. A broken one is found by its
// full id only.
func (r *Repository) Invocation(query string) (Invocation, error) {
	return r.core.Invocation(query)
}
