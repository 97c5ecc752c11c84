package core

import (
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// TrustsRepoConfig reports whether the repository's own config can only have been written by the user, for work on
// the tree or a snapshot of an invocation or a worktree. Filters and merge drivers that it names then run as git
// would run them.
//
// Commands behind walls cannot write the config; commands of a sandbox without walls can. So it is not trusted for
// the tree of such a sandbox, nor, if it names filters or merge drivers, while any such sandbox is on record. An
// invocation without a record, or with a record older than walls, counts as one without walls. Per-worktree config is
// not examined: wherever worktrees may have different settings, it is taken to name such a program.
func (r *Repository) TrustsRepoConfig(id string) bool {
	if !store.IsDir(r.Store.WorktreeDir(r.ID, id)) {
		e := r.Store.Invocation(r.ID, id, nil)
		creation := e.Defect != store.NoDefect && e.Intent != nil // an unfinished creation: no command ever ran in there
		if !creation && !hadWalls(e) {
			return false
		}
	}
	if len(r.Git.UntrustedFilters()) == 0 && !r.Git.HasUntrustedMergeDriver() && !r.Git.ConfigVariesByWorktree() {
		return true // no filter or merge driver is named, so there is nothing to trust
	}
	return r.AllSandboxesWalled()
}

// AllSandboxesWalled reports whether every sandbox on record has walls, so that only the user can have written the
// repository's own config.
func (r *Repository) AllSandboxesWalled() bool {
	all, err := r.Store.Invocations(r.ID, nil)
	return err == nil && !slices.ContainsFunc(all, func(e store.Entry[store.InvocationMeta]) bool {
		return (e.Defect == store.NoDefect || e.Intent == nil) && !hadWalls(e)
	})
}

func hadWalls(e store.Entry[store.InvocationMeta]) bool {
	return settings.FillLegacyPrimitives(e.Record.Primitives).Isolation == settings.IsolationOS
}
