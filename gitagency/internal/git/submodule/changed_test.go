package submodule

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

func TestCommitTreeReportsErrorOfLookup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Checkout{Source: &git.Repo{CommonDir: t.TempDir()}, Module: Module{Commit: strings.Repeat("1", 40)}}
	if tree, err := c.commitTree(ctx); tree != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", tree, err)
	}
}
