package confine

import (
	"context"
	"encoding/json"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// TryBuild builds walls around nothing, to find out whether this machine can, and removes them again.
func Try(ctx context.Context, outputs string, bare bool) error {
	plan, err := DrawBare(outputs)
	if err != nil {
		return err
	}
	if !bare {
		if plan, err = drawTrial(plan.Network, Look()); err != nil {
			return err
		}
	}
	ns, err := openRoom(ctx, plan, os.DevNull)
	if err != nil {
		return err
	}
	return ns.Close()
}

// trialPlan returns a plan with every kind of wall that a machine can build, around nothing.
func drawTrial(network Network, m Machine) (Plan, error) {
	if err := m.check(); err != nil {
		return Plan{}, err
	}
	return Plan{Hostname: hostname, Network: network, Private: []string{"/tmp"}, LandlockABI: min(m.LandlockABI, NewestABI)}, nil
}

func openRoom(ctx context.Context, p Plan, label string, hold ...*os.File) (*proc.Room, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return proc.Walls{Plan: plan, Network: p.Network != HostNetwork}.Open(ctx, label, hold...)
}
