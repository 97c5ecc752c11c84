package core

import (
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkoutSource returns a worktree as one whose unchanged files are copied to a new tree; the zero value where the user wants
// git's own checkout, or there is no worktree. The id is that of the integration worktree; without one, no hashes are cached.
func (r *Repository) checkoutSource(repo *git.Repo, tree, id string) (checkout.Source, error) {
	fast, err := r.Settings.FastCheckout()
	if err != nil || !fast || tree == "" {
		return checkout.Source{}, err
	}
	gitDir, err := GitDirOf(repo, tree)
	if err != nil {
		return checkout.Source{}, nil // the checkout does not need it
	}
	source := checkout.Source{Tree: tree, GitDir: gitDir}
	if id != "" {
		name := id + hashCacheSuffix
		source.Hashes = checkout.HashCache{
			Load: func() []byte { return r.Store.ReadRadarCache(r.ID, name) },
			Save: func(data []byte) {
				if err := r.Store.WriteRadarCache(r.ID, name, data); err != nil {
					r.Warn("the hashes of the files in %s could not be cached: %v", tree, err)
				}
			},
		}
	}
	return source, nil
}

const hashCacheSuffix = ".hashed" // of the cache of an integration worktree, after its id

// IsHashCacheInUse reports whether a file in the directory of caches has the hashes of an integration worktree that is present.
func (r *Repository) IsHashCacheInUse(name string) bool {
	id, ok := strings.CutSuffix(name, hashCacheSuffix)
	return ok && ids.Valid(id) && r.Store.Worktree(r.ID, id, nil).Record.State == store.Present
}
