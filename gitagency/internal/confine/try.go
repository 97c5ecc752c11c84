package confine

import (
	"context"
	"encoding/json"
	"os"

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
