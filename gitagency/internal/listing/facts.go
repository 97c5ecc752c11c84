package listing

import (
	"encoding/json"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// facts are results about commits, which stay true. They are stored for the next run.
type facts struct {
	old, used factCache // those of earlier runs, and those that this one uses
}

// factCache is the form of facts on disk.
type factCache struct {
	Version int               `json:"version"`
	Trees   map[string]string `json:"trees"` // trees of commits
	Ahead   map[string]int    `json:"ahead"` // numbers of commits that one commit has and another does not: see aheadKey
}

const (
	factCacheName    = "listing.json" // beside the cache of radar, which leaves it alone
	factCacheVersion = 1
)

func newFactCache() factCache {
	return factCache{Version: factCacheVersion, Trees: map[string]string{}, Ahead: map[string]int{}}
}

// loadFacts reads the facts of the last run. A file that cannot be read counts as empty.
func loadFacts(r *core.Repository) *facts {
	f := &facts{old: newFactCache(), used: newFactCache()}
	var stored factCache
	if json.Unmarshal(r.Store.ReadRadarCache(r.ID, factCacheName), &stored) == nil && stored.Version == factCacheVersion {
		f.old = stored
	}
	return f
}

// maxOldFacts is the number of stored facts beyond which those that a run does not use are dropped.
const maxOldFacts = 2000

// minListed is the number of sandboxes from which on facts are stored. Fewer are listed fast enough without a cache.
const minListed = 16

// save stores the facts if this run has found new ones, and has listed many sandboxes.
func (f *facts) save(r *core.Repository, listed int) {
	if listed < minListed {
		return
	}
	if isSubset(f.used.Trees, f.old.Trees) && isSubset(f.used.Ahead, f.old.Ahead) {
		return
	}
	if len(f.old.Trees)+len(f.old.Ahead) <= maxOldFacts {
		addMissing(f.used.Trees, f.old.Trees)
		addMissing(f.used.Ahead, f.old.Ahead)
	}
	data, err := json.Marshal(f.used)
	if err == nil {
		err = r.Store.WriteRadarCache(r.ID, factCacheName, data)
	}
	if err != nil {
		r.Warn("the results of this listing could not be cached: %v", err)
	}
}

// isSubset reports whether a map has all keys of another one.
func isSubset[T any](part, all map[string]T) bool {
	for key := range part {
		if _, there := all[key]; !there {
			return false
		}
	}
	return true
}

// addMissing copies the entries that a map does not have.
func addMissing[T any](to, from map[string]T) {
	for key, v := range from {
		if _, there := to[key]; !there {
			to[key] = v
		}
	}
}

func aheadKey(commit, upstream string) string { return commit + " " + upstream }

// ahead returns how many commits a commit has that upstream does not have.
func (f *facts) ahead(commit, upstream string) (n int, known bool) {
	if commit == upstream {
		return 0, commit != ""
	}
	return lookupFact(f.old.Ahead, f.used.Ahead, aheadKey(commit, upstream))
}

func (f *facts) setAhead(commit, upstream string, n int) {
	f.used.Ahead[aheadKey(commit, upstream)] = n
}

// tree returns the tree of a commit; empty if it is not known.
func (f *facts) tree(commit string) string {
	tree, _ := lookupFact(f.old.Trees, f.used.Trees, commit)
	return tree
}

func (f *facts) setTree(commit, tree string) { f.used.Trees[commit] = tree }

// lookupFact looks a fact up in both caches, and copies it from the old to the used one.
func lookupFact[T any](old, used map[string]T, key string) (T, bool) {
	if v, known := used[key]; known {
		return v, true
	}
	v, known := old[key]
	if known {
		used[key] = v
	}
	return v, known
}
