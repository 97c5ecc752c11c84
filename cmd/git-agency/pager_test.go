package main

import (
	"testing"
)

func TestPagedCommandsExist(t *testing.T) {
	t.Parallel()
	commands := leafCommands("git agency", allCommands())
	for _, name := range pagedCommands {
		if commands["git agency "+name] == nil {
			t.Errorf("the paged command %q does not exist", name)
		}
	}
}
