package gitagency

import (
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// trustsRepoConfig reports whether the repository's own config can only have been written by the user, for work on
// the tree or a snapshot of an invocation or a worktree. Filters and merge drivers that it names then run as git
// would run them.
//
// Commands behind walls cannot write the config; commands of a sandbox without walls can. So it is not trusted for
// the tree of such a sandbox, nor, if it names filters or merge drivers, while any such sandbox is on record. An
// invocation without a record, or with a record older than walls, counts as one without walls. Per-worktree config is
// not examined: wherever worktrees may have different settings, it is taken to name such a program.
func (r *Repository) trustsRepoConfig(id string) bool {
	if !store.IsDir(r.store.WorktreeDir(r.ID, id)) {
		e := r.store.Invocation(r.ID, id, nil)
		creation := e.Defect != store.NoDefect && e.Intent != nil // an unfinished creation: no command ever ran in there
		if !creation && !hadWalls(e) {
			return false
		}
	}
	if len(r.git.UntrustedFilters()) == 0 && !r.git.HasUntrustedMergeDriver() && !r.git.ConfigVariesByWorktree() {
		return true // no filter or merge driver is named, so there is nothing to trust
	}
	return r.allSandboxesWalled()
}

// allSandboxesWalled reports whether every sandbox on record has walls, so that only the user can have written the
// repository's own config.
func (r *Repository) allSandboxesWalled() bool {
	all, err := r.store.Invocations(r.ID, nil)
	return err == nil && !slices.ContainsFunc(all, func(e store.Entry[store.InvocationMeta]) bool {
		return (e.Defect == store.NoDefect || e.Intent == nil) && !hadWalls(e)
	})
}

func hadWalls(e store.Entry[store.InvocationMeta]) bool {
	return fillLegacyPrimitives(e.Record.Primitives).Isolation == isolationOS
}
