package confine

import (
	"context"
	"encoding/json"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// TryBuild builds walls around nothing, to find out whether this machine can, and removes them again.
func TryBuild(ctx context.Context, outputs string, bare bool) error {
	plan, err := walls.MakeNetworkPlan(outputs)
	if err != nil {
		return err
	}
	if !bare {
		if plan, err = walls.MakeTrialPlan(plan.Network, InspectMachine()); err != nil {
			return err
		}
	}
	ns, err := startNamespace(ctx, plan, os.DevNull)
	if err != nil {
		return err
	}
	return ns.Close()
}

func startNamespace(ctx context.Context, p walls.Plan, label string, hold ...*os.File) (*proc.Namespace, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return proc.Walls{Plan: plan, OwnNetwork: p.Network != walls.HostNetwork}.StartNamespace(ctx, label, hold...)
}
