package merge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// MergeBases returns the merge bases of pairs of commits, as "git merge-base --all" does, with two git processes for any
// number of pairs. The result is empty, and the caller has to ask git for each pair, if the commits do not all have exactly
// one merge base in common.
func MergeBases(ctx context.Context, m *git.Mirror, pairs [][2]string) (map[[2]string][]string, error) {
	var tips []string
	for _, p := range pairs {
		if !object.IsOID(p[0]) || !object.IsOID(p[1]) {
			return nil, fmt.Errorf("not an object id: %q", p)
		}
		tips = append(tips, p[0], p[1])
	}
	slices.Sort(tips)
	tips = slices.Compact(tips)
	found := map[[2]string][]string{}
	if len(tips) < 2 {
		for _, p := range pairs {
			found[p] = []string{p[0]}
		}
		return found, nil
	}
	p := m.GitOptions()
	p.Env = append(p.Env, "GIT_NO_REPLACE_OBJECTS=1")
	out, err := m.Repo.RunRead(ctx, p, slices.Concat([]string{"merge-base", "--octopus", "--all"}, tips)...)
	if err != nil && !git.ExitedWith(err, 1) {
		return nil, err
	}
	common := strings.Fields(string(out))
	if len(common) != 1 {
		return found, nil
	}
	out, err = m.Repo.RunRead(ctx, p, slices.Concat([]string{"rev-list", "--parents"}, tips, []string{"--not", common[0]})...)
	if err != nil {
		return nil, err
	}
	h := parseCommitGraph(out)
	h.root = common[0]
	for _, p := range pairs {
		found[p] = h.mergeBases(p[0], p[1])
	}
	return found, nil
}

// commitGraph holds a part of the ancestors of some commits: those that other commits do not have.
type commitGraph struct {
	root      string                     // for mergeBases: the ancestor that all of them have in common, and that is not in the graph
	parents   map[string][]string        // parents by commit
	ancestors map[string]map[string]bool // cached results of ancestorsOf
}

// parseCommitGraph parses the output of "git rev-list --parents".
func parseCommitGraph(out []byte) commitGraph {
	g := commitGraph{parents: map[string][]string{}, ancestors: map[string]map[string]bool{}}
	for line := range strings.Lines(string(out)) {
		if ids := strings.Fields(line); len(ids) > 0 {
			g.parents[ids[0]] = ids[1:]
		}
	}
	return g
}

// mergeBases returns the common ancestors of two commits that are not ancestors of another common ancestor. Both commits
// have the root as an ancestor, so it is a merge base unless it is a parent of another one.
func (g commitGraph) mergeBases(a, b string) []string {
	shared := map[string]bool{}
	for c := range g.ancestorsOf(a) {
		if g.ancestorsOf(b)[c] {
			shared[c] = true
		}
	}
	best := map[string]bool{g.root: true}
	for c := range shared {
		best[c] = true
	}
	for c := range shared {
		for _, parent := range g.parents[c] {
			delete(best, parent)
		}
	}
	var found []string
	for c := range best {
		found = append(found, c)
	}
	slices.Sort(found)
	return found
}

// ancestorsOf returns the commit and its ancestors in the graph.
func (g commitGraph) ancestorsOf(commit string) map[string]bool {
	if seen, known := g.ancestors[commit]; known {
		return seen
	}
	seen := map[string]bool{}
	for todo := []string{commit}; len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if parents, part := g.parents[c]; part && !seen[c] {
			seen[c] = true
			todo = append(todo, parents...)
		}
	}
	g.ancestors[commit] = seen
	return seen
}
