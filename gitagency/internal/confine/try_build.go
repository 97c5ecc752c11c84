package confine

import (
	"context"
	"encoding/json"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// TryBuild builds walls around nothing, to find out whether this machine can, and removes them again.
func TryBuild(ctx context.Context, outputs string, bare bool) error {
	plan, err := MakeNetworkPlan(outputs)
	if err != nil {
		return err
	}
	if !bare {
		if plan, err = trialPlan(plan.Network, InspectMachine()); err != nil {
			return err
		}
	}
	ns, err := startNamespace(ctx, plan, os.DevNull)
	if err != nil {
		return err
	}
	return ns.Close()
}

// trialPlan returns a plan with every kind of wall that a machine can build, around nothing.
func trialPlan(network Network, m Machine) (Plan, error) {
	if err := m.checkSupported(); err != nil {
		return Plan{}, err
	}
	return Plan{Hostname: hostname, Network: network, Private: []string{"/tmp"}, LandlockABI: min(m.LandlockABI, landlock.NewestABI)}, nil
}

func startNamespace(ctx context.Context, p Plan, label string, hold ...*os.File) (*proc.Namespace, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return proc.Walls{Plan: plan, OwnNetwork: p.Network != HostNetwork}.StartNamespace(ctx, label, hold...)
}
