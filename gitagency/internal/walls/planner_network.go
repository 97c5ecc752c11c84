package walls

import (
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

// MakeTrialPlan returns a plan with every kind of wall that a machine can build, around nothing.
func MakeTrialPlan(network Network, m Machine) (Plan, error) {
	if err := m.checkSupported(); err != nil {
		return Plan{}, err
	}
	return Plan{Hostname: hostname, Network: network, Private: []string{"/tmp"}, LandlockABI: min(m.LandlockABI, landlock.NewestABI)}, nil
}

// MakeNetworkPlan plans walls for the network alone.
func MakeNetworkPlan(outputs string) (Plan, error) {
	network, err := planNetwork(outputs)
	return Plan{Network: network, NetworkOnly: true}, err
}

func planNetwork(outputs string) (Network, error) {
	hosts, some := strings.CutPrefix(outputs, "hosts:")
	switch {
	case outputs == "open":
		return HostNetwork, nil
	case outputs == "none":
		return NoNetwork, nil
	case some && hosts != "":
		return ProxiedOnly, nil
	}
	return "", &RefusedError{Wall: "network", Why: fmt.Sprintf("invalid outputs %q", outputs), Remedy: "want open, none or hosts:…"}
}
