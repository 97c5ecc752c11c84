package snapshot

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// NotIgnored returns the paths that the ignore rules of a tree do not ignore.
func NotIgnored(ctx context.Context, r *git.Repo, s git.WorktreeSpec, tree string, names []string) ([]string, error) {
	ignored, err := ignoredByTree(ctx, r, s, tree, names)
	if err != nil {
		return nil, err
	}
	some := map[string]bool{}
	for _, name := range ignored {
		some[name] = true
	}
	return withoutNames(names, some), nil
}
