package merge

import (
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// CountAhead returns for each of some commits how many commits it has that upstream does not have, as "git rev-list
// --count upstream..commit" does, with one git process for all of them.
func CountAhead(ctx context.Context, r *git.Repo, upstream string, commits []string) (map[string]int, error) {
	var stdin strings.Builder
	for _, c := range append([]string{upstream}, commits...) {
		if !object.IsOID(c) {
			return nil, fmt.Errorf("not an object id: %q", c)
		}
	}
	fmt.Fprintf(&stdin, "^%s\n%s\n", upstream, strings.Join(commits, "\n"))
	out, err := r.RunRead(ctx, git.RunOptions{
		Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}, Stdin: stdin.String(), Reading: r.ReadingOf("counting the commits that are not in " + upstream[:12]),
	}, "rev-list", "--parents", "--stdin")
	if err != nil {
		return nil, err
	}
	graph := parseCommitGraph(out)
	counts := map[string]int{}
	for _, c := range commits {
		counts[c] = len(graph.ancestorsOf(c))
	}
	return counts, nil
}
