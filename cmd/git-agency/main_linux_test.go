package main

import (
	"maps"

	"github.com/git-agency/git-agency/scripts/fakepodman"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

func addPlatformCommands(commands map[string]func()) {
	commands["killat"] = killatMain
	commands["escapist"] = escapistMain
	commands["listener"] = listenerMain
	maps.Copy(commands, fakeslurm.Programs())
	maps.Copy(commands, fakepodman.Programs())
}
