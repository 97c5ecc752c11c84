package main

import (
	"io"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

func TestPagedCommandsExist(t *testing.T) {
	t.Parallel()
	commands := leafCommands("git agency", newTool(io.Discard, io.Discard, gitagency.Options{}).commands())
	for _, name := range pagedCommands {
		if commands["git agency "+name] == nil {
			t.Errorf("the paged command %q does not exist", name)
		}
	}
}
