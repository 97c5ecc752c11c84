package git

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Bases says of pairs of commits what both have in common: what "git merge-base --all" says of each, for two gits
// however many there are. There is nothing under pairs of which it would have to be asked.
func (m *Mirror) Bases(ctx context.Context, pairs [][2]string) (map[[2]string][]string, error) {
	var tips []string
	for _, p := range pairs {
		if !isOID(p[0]) || !isOID(p[1]) {
			return nil, fmt.Errorf("not a name of an object: %q", p)
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
	p := m.place()
	p.env = append(p.env, "GIT_NO_REPLACE_OBJECTS=1")
	out, err := m.repo.read(ctx, p, slices.Concat([]string{"merge-base", "--octopus", "--all"}, tips)...)
	if err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	common := strings.Fields(string(out))
	if len(common) != 1 {
		return found, nil
	}
	out, err = m.repo.read(ctx, p, slices.Concat([]string{"rev-list", "--parents"}, tips, []string{"--not", common[0]})...)
	if err != nil {
		return nil, err
	}
	h := lineage{root: common[0], parents: map[string][]string{}, known: map[string]map[string]bool{}}
	for line := range strings.Lines(string(out)) {
		if ids := strings.Fields(line); len(ids) > 0 {
			h.parents[ids[0]] = ids[1:]
		}
	}
	for _, p := range pairs {
		found[p] = h.bases(p[0], p[1])
	}
	return found, nil
}

// lineage is all that leads to some commits and not to one that all of them have in common.
type lineage struct {
	root    string
	parents map[string][]string
	known   map[string]map[string]bool // what leads to a commit
}

// bases are those that both have in common, and that lead to no other such. All that leads to the root they have in
// common too; so the root is one of them unless it leads to another.
func (h lineage) bases(a, b string) []string {
	shared := map[string]bool{}
	for c := range h.upTo(a) {
		if h.upTo(b)[c] {
			shared[c] = true
		}
	}
	best := map[string]bool{h.root: true}
	for c := range shared {
		best[c] = true
	}
	for c := range shared {
		for _, parent := range h.parents[c] {
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

// upTo is what leads to a commit, itself included.
func (h lineage) upTo(commit string) map[string]bool {
	if seen, known := h.known[commit]; known {
		return seen
	}
	seen := map[string]bool{}
	for todo := []string{commit}; len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if parents, part := h.parents[c]; part && !seen[c] {
			seen[c] = true
			todo = append(todo, parents...)
		}
	}
	h.known[commit] = seen
	return seen
}
