package listing

import (
	"crypto/sha256"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// facts are results about commits, which stay true while the files that cut history off stay the same, and commits of
// sandboxes with the versions of the files that name them.
// They are stored for the next run.
type facts struct {
	old, used factCache // those of earlier runs, and those that this one uses
	newTips   int       // tips of this run that are not in old
}

// factCache is the form of facts on disk.
type factCache struct {
	Trees map[string]string // trees of commits
	Ahead map[string]int    // numbers of commits that one commit has and another does not: see aheadKey
	Tips  []tip             // commits of sandboxes, sorted by id
	Cuts  string            // hash of the files that cut history off, on which Ahead depends
}

// tip is the commit of the branch of a sandbox, which is also that of its HEAD.
type tip struct {
	ID      string
	Version tipVersion
	Commit  string
}

// tipVersion has the versions of the files that name the commit of a sandbox: of its branch, and of its HEAD.
type tipVersion struct{ Ref, Head durable.FileVersion }

const factCacheName = "listing" + cachefile.Suffix

func newFactCache() factCache {
	return factCache{Trees: map[string]string{}, Ahead: map[string]int{}}
}

// loadFacts reads the facts of the last run. A file that cannot be read counts as empty.
func loadFacts(r *core.Repository) *facts {
	f := &facts{old: newFactCache(), used: newFactCache()}
	f.used.Cuts = hashCuts(r)
	if stored, err := cachefile.Decode[factCache](r.Store.ReadRadarCache(r.ID, factCacheName)); err == nil {
		f.old = stored
	}
	if f.old.Cuts != f.used.Cuts {
		f.old.Ahead = nil
	}
	return f
}

// hashCuts returns a hash of the files by which git takes commits for ones without parents or with others: those of shallow
// repositories and of grafts.
func hashCuts(r *core.Repository) string {
	h := sha256.New()
	for _, name := range []string{"shallow", "info/grafts"} {
		const most = 1 << 26
		data, _ := durable.ReadFile(filepath.Join(r.CommonDir, name), most) // mostly missing
		sum := sha256.Sum256(data)
		h.Write(sum[:])
	}
	return string(h.Sum(nil))
}

// maxOldFacts is the number of stored facts beyond which those that a run does not use are dropped.
const maxOldFacts = 5000

// minListed is the number of sandboxes from which on facts are stored. Fewer are listed fast enough without a cache.
const minListed = 16

// newTipsPart is the part of all tips that must be new for these alone to be stored: of many agents, some commit between any
// two listings, and writing all tips takes longer than reading a few.
const newTipsPart = 16

// save stores the facts if this run has found new ones, and has listed many sandboxes.
func (f *facts) save(r *core.Repository, listed int) {
	if listed < minListed || hashCuts(r) != f.used.Cuts {
		return
	}
	if isSubset(f.used.Trees, f.old.Trees) && isSubset(f.used.Ahead, f.old.Ahead) && f.newTips <= listed/newTipsPart {
		return
	}
	if len(f.old.Trees)+len(f.old.Ahead)+len(f.old.Tips) <= maxOldFacts {
		addMissing(f.used.Trees, f.old.Trees)
		addMissing(f.used.Ahead, f.old.Ahead)
		f.used.Tips = append(f.used.Tips, f.old.Tips...)
	}
	slices.SortStableFunc(f.used.Tips, compareIDs) // a new tip before the old one of the same sandbox
	f.used.Tips = slices.CompactFunc(f.used.Tips, func(a, b tip) bool { return a.ID == b.ID })
	data, err := cachefile.Encode(f.used)
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

// tip returns the commit of a sandbox whose files have a version; empty if it has to be read.
func (f *facts) tip(id string, version tipVersion) string {
	i, there := slices.BinarySearchFunc(f.old.Tips, tip{ID: id}, compareIDs)
	if !there || !version.isKnown() || f.old.Tips[i].Version != version {
		return ""
	}
	f.used.Tips = append(f.used.Tips, f.old.Tips[i])
	return f.old.Tips[i].Commit
}

// setTip sets the commit of a sandbox. An unknown version means that it has to be read again.
func (f *facts) setTip(id string, version tipVersion, commit string) {
	if version.isKnown() {
		f.used.Tips = append(f.used.Tips, tip{id, version, commit})
		f.newTips++
	}
}

func compareIDs(a, b tip) int { return strings.Compare(a.ID, b.ID) }

func (v tipVersion) isKnown() bool { return v.Ref.IsKnown() && v.Head.IsKnown() }

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
