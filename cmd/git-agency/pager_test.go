package main

import (
	"io"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// TestUsePagerFollowsGit checks usePager for all combinations of its inputs: a pager needs a terminal, a program, and no
// pager that runs already.
func TestUsePagerFollowsGit(t *testing.T) {
	t.Parallel()
	truths := []bool{false, true}
	for _, terminal := range truths {
		for _, inUse := range truths {
			for _, setting := range []string{"", "always", "never"} {
				for _, program := range []string{"", "less"} {
					for _, listing := range truths {
						q := pagerPolicy{terminal, inUse, setting, program, listing}
						possible := terminal && !inUse && program != ""
						wanted := map[string]bool{"always": true, "never": false, "": listing}[setting]
						if got := q.usePager(); got != (possible && wanted) {
							t.Errorf("%+v: got %v", q, got)
						}
					}
				}
			}
		}
	}
}

func TestPagedCommandsExist(t *testing.T) {
	t.Parallel()
	commands := leafCommands("git agency", newTool(io.Discard, io.Discard, gitagency.Options{}).commands())
	for _, name := range pagedCommands {
		if commands["git agency "+name] == nil {
			t.Errorf("the paged command %q does not exist", name)
		}
	}
}
