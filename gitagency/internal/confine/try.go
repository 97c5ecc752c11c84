package confine

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Try builds walls around nothing, to see whether this machine can, and takes them down again.
func Try(ctx context.Context, outputs string, bare bool) error {
	plan, err := DrawBare(outputs)
	if err != nil {
		return err
	}
	if machine := Look(); !bare {
		if err := machine.check(); err != nil {
			return err
		}
		plan = Plan{Hostname: "localhost", Network: plan.Network, Private: []string{"/tmp"}, LandlockABI: min(machine.LandlockABI, NewestABI)}
	}
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	room, err := proc.Walls{Plan: data, Network: plan.Network != HostNetwork}.Open(ctx, os.DevNull)
	if err != nil {
		return err
	}
	return room.Close()
}

// Weaker says in what the walls of one plan are weaker than those of another; empty when in nothing.
func (p Plan) Weaker(than Plan) string {
	switch {
	case p.Network != than.Network:
		return "the network is that of outputs that were changed"
	case p.LandlockABI < than.LandlockABI:
		return "landlock"
	}
	for _, path := range than.Hidden {
		if p.Sees(path) {
			return path + " is not hidden"
		}
	}
	for _, path := range p.Writable {
		if !slices.Contains(than.Writable, path) {
			return path + " can be written"
		}
	}
	return ""
}
