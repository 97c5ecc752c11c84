package gitagency

import (
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// trustsSettings reports whether the repository's own settings can only be the word of the user, for what is done with
// the tree, or with a snapshot, of an invocation or a worktree. Then filters and merge drivers that they name run as git
// would run them.
//
// Behind walls nobody can write them. Without walls everybody can; so they are not trusted where such a sandbox is
// concerned, nor where such programs are named while any such sandbox is on record. What has no record, or one from before
// there were walls, had none. What is set for one worktree alone is not looked for: any of them may name such a program.
func (r *Repository) trustsSettings(id string) bool {
	if !store.IsDir(r.store.WorktreeDir(r.ID, id)) {
		e := r.store.Invocation(r.ID, id, nil)
		creation := e.Broken != store.Whole && e.Intent != nil // nobody was ever in there
		if !creation && !hadWalls(e) {
			return false
		}
	}
	if len(r.git.OwnFilters()) == 0 && !r.git.OwnMergeDrivers() && !r.git.Varies() {
		return true // there is nothing to trust
	}
	return r.allHadWalls()
}

// allHadWalls reports whether no sandbox on record is without walls: the settings of the repository are the user's.
func (r *Repository) allHadWalls() bool {
	all, err := r.store.Invocations(r.ID, nil)
	return err == nil && !slices.ContainsFunc(all, func(e store.Entry[store.InvocationMeta]) bool {
		return (e.Broken == store.Whole || e.Intent == nil) && !hadWalls(e)
	})
}

func hadWalls(e store.Entry[store.InvocationMeta]) bool {
	return sinceWalls(e.Record.Primitives).Isolation == isolationOS
}
