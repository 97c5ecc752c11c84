package gitagency

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// facts are what radar has found out about commits and trees. They are named by their content, so it stays true whatever
// happens in the repository; what is not needed any more is forgotten. Only what comes of a merge depends on settings too.
type facts struct {
	Version int                    `json:"version"`
	Ground  string                 `json:"ground"`  // with which settings they were merged
	Bases   map[string][]string    `json:"bases"`   // what two commits have in common; nothing where only git can say
	Touched map[string][]touchFact `json:"touched"` // what a tree changes in a commit
	Merges  map[string]mergeFact   `json:"merges"`  // what came of merging one tree on top of a commit with another
	Refused map[string]string      `json:"refused"` // why what is on top of a commit must not land; empty where it may
}

// factsVersion is that of the way in which they are found out: what another one has found out does not count.
const factsVersion = 1

// touchFact is git.Touch. A path need not be text.
type touchFact struct {
	Path []byte        `json:"path"`
	How  git.TouchKind `json:"how"`
}

// mergeFact is what came of a merge.
type mergeFact struct {
	Conflicts [][]byte `json:"conflicts,omitempty"` // paths
	Nothing   bool     `json:"nothing,omitempty"`   // the second side has nothing that the first has not
	Unrelated bool     `json:"unrelated,omitempty"` // they have nothing in common, so that nothing can come of it
}

func (m mergeFact) clean() bool { return len(m.Conflicts) == 0 && !m.Unrelated }

func noFacts(ground string) facts {
	return facts{Version: factsVersion, Ground: ground, Bases: map[string][]string{}, Touched: map[string][]touchFact{}, Merges: map[string]mergeFact{}, Refused: map[string]string{}}
}

// parseFacts: what cannot be read was never found out.
func parseFacts(data []byte, ground string) facts {
	var f facts
	if json.Unmarshal(data, &f) != nil || f.Version != factsVersion {
		return noFacts(ground)
	}
	if f.Ground != ground {
		f.Merges = nil
	}
	return f
}

// factKey is what a fact about some ids is kept under.
func factKey(ids ...string) string {
	const enough = 16 // bytes, so that no two are the same
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return hex.EncodeToString(sum[:enough])
}

// recalled carries a fact over into those that are kept.
func recalled[T any](from, to map[string]T, key string) (T, bool) {
	if v, known := to[key]; known {
		return v, true
	}
	v, known := from[key]
	if known {
		to[key] = v
	}
	return v, known
}

func touchFacts(touches []git.Touch) []touchFact {
	found := []touchFact{}
	for _, t := range touches {
		found = append(found, touchFact{[]byte(t.Path), t.How})
	}
	return found
}

func touches(found []touchFact) []git.Touch {
	all := make([]git.Touch, len(found))
	for i, t := range found {
		all[i] = git.Touch{Path: string(t.Path), How: t.How}
	}
	slices.SortFunc(all, func(a, b git.Touch) int { return strings.Compare(a.Path, b.Path) }) // whoever wrote them
	return all
}
