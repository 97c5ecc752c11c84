package core

import (
	"bytes"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
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
	if boot := procfs.BootID(); id != "" && boot != "" {
		source.Hashes = r.hashCache(id, boot)
	}
	return source, nil
}

const hashCacheSuffix = ".hashed" // of the cache of an integration worktree, after its id

// hashCache returns the cache of an integration worktree. It is for one boot of the machine: after a power failure, the disk may have
// new data of a file with its old ctime.
func (r *Repository) hashCache(id, boot string) checkout.HashCache {
	name, head := id+hashCacheSuffix, []byte(boot+"\n")
	return checkout.HashCache{
		Load: func() []byte {
			data, ok := bytes.CutPrefix(r.Store.ReadRadarCache(r.ID, name), head)
			if !ok {
				return nil
			}
			return data
		},
		Save: func(data []byte) {
			if err := r.Store.WriteRadarCache(r.ID, name, slices.Concat(head, data)); err != nil {
				r.Warn("the hashes of the files of %s could not be cached, so the next start computes them again: %v", id, err)
			}
		},
	}
}

// IsHashCacheInUse reports whether a file in the directory of caches has the hashes of an integration worktree that is present.
func (r *Repository) IsHashCacheInUse(name string) bool {
	id, ok := strings.CutSuffix(name, hashCacheSuffix)
	return ok && ids.Valid(id) && r.Store.Worktree(r.ID, id, nil).Record.State == store.Present
}
