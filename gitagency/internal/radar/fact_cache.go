package radar

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
)

// factCache holds the results of earlier Radar runs. Commits and trees are named by their content, so the results stay
// valid whatever happens in the repository; only merge results also depend on configuration. Results that the current run
// does not use are dropped.
type factCache struct {
	Version      int                    `json:"version"`
	ConfigDigest string                 `json:"ground"`  // configuration under which Merges were computed
	Bases        map[string][]string    `json:"bases"`   // merge bases of two commits; empty if only git can tell
	Touched      map[string][]touchFact `json:"touched"` // paths that a tree changes relative to a commit
	Merges       map[string]mergeFact   `json:"merges"`  // result of merging one commit and tree with another
	Refused      map[string]string      `json:"refused"` // why the work on top of a commit must not land; empty if it may
}

// factCacheVersion is the version of the algorithms; bump it to invalidate cached results.
const factCacheVersion = 1

// touchFact is a touched path in a form for JSON: a path may contain invalid UTF-8.
type touchFact struct {
	Path []byte          `json:"path"`
	How  merge.TouchKind `json:"how"`
}

// mergeFact is the result of a merge.
type mergeFact struct {
	Conflicts  [][]byte `json:"conflicts,omitempty"` // paths
	NothingNew bool     `json:"nothing,omitempty"`   // the second side has no changes that the first lacks
	Unrelated  bool     `json:"unrelated,omitempty"` // the sides have no common ancestor and cannot be merged
}

func (m mergeFact) clean() bool { return len(m.Conflicts) == 0 && !m.Unrelated }

func newFactCache(configDigest string) factCache {
	return factCache{Version: factCacheVersion, ConfigDigest: configDigest, Bases: map[string][]string{}, Touched: map[string][]touchFact{}, Merges: map[string]mergeFact{}, Refused: map[string]string{}}
}

// parseFactCache decodes a cache file. Unreadable data gives an empty cache, another configuration drops the merges.
func parseFactCache(data []byte, configDigest string) factCache {
	var f factCache
	if json.Unmarshal(data, &f) != nil || f.Version != factCacheVersion {
		return newFactCache(configDigest)
	}
	if f.ConfigDigest != configDigest {
		f.Merges = nil
	}
	return f
}

// factKey returns the map key for a result about object ids.
func factKey(ids ...string) string {
	const enough = 16 // bytes; enough to rule out collisions
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return hex.EncodeToString(sum[:enough])
}

// reuseFact looks a result up in both caches, and copies it from the old to the new one.
func reuseFact[T any](from, to map[string]T, key string) (T, bool) {
	if v, known := to[key]; known {
		return v, true
	}
	v, known := from[key]
	if known {
		to[key] = v
	}
	return v, known
}

func encodeTouches(touches []merge.TouchedPath) []touchFact {
	found := []touchFact{}
	for _, t := range touches {
		found = append(found, touchFact{[]byte(t.Path), t.Kind})
	}
	return found
}

func decodeTouches(found []touchFact) []merge.TouchedPath {
	all := make([]merge.TouchedPath, len(found))
	for i, t := range found {
		all[i] = merge.TouchedPath{Path: string(t.Path), Kind: t.How}
	}
	// The conflict check needs sorted lists, and the cache file may have been edited.
	slices.SortFunc(all, func(a, b merge.TouchedPath) int { return strings.Compare(a.Path, b.Path) })
	return all
}
