package sandbox

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// init turns this process into a relay process if it was started as one; then it does not return.
func init() { proc.RunHelper(outlet.RelayProcessName, outlet.RunRelayProcess) }

// relayed returns the addresses on the loopback of the sandbox that lead to this machine.
func (w Walls) relayed() []string {
	var addresses []string
	for _, r := range w.rules.LoopbackRelays() {
		addresses = append(addresses, r.Inside.String())
	}
	return addresses
}

// startRelays relays listed ports of the loopback to this machine, for all commands until the namespaces end. Their
// creator does so before any program runs there; later commands can only say what is missing. An address that cannot be
// relayed is a warning: the command reaches less than it may.
func (in *nsSession) startRelays(ctx context.Context) error {
	relays := in.walls.rules.LoopbackRelays()
	if len(relays) == 0 {
		return nil
	}
	file := filepath.Join(in.sandbox.Repo.Store.WallsDir(in.sandbox.Repo.ID, in.sandbox.ID), "relays.json")
	if in.ns.Created {
		if err := in.serveRelays(ctx, relays, file); err != nil {
			return err
		}
	} else {
		for _, r := range relays {
			if !r.Optional && !slices.Contains(in.walls.applied.Relayed, r.Inside.String()) {
				in.sandbox.Repo.Warn("sandbox %s: %s is not relayed to this machine until the commands that run there have ended", in.sandbox.ID, r.Inside)
			}
		}
		if len(in.walls.applied.Relayed) == 0 {
			return nil
		}
	}
	f, err := outlet.OpenRelayFailures(file)
	if err == nil {
		in.relayFailures = f
		in.failuresAtStart, err = outlet.ReadRelayFailures(f)
	}
	if err != nil {
		in.sandbox.Repo.Warn("sandbox %s: connections to this machine that failed before are unknown: %v", in.sandbox.ID, err)
	}
	for _, address := range slices.Sorted(maps.Keys(in.failuresAtStart.NotListening)) {
		in.sandbox.Repo.Warn("sandbox %s: %s is not relayed to this machine: %s", in.sandbox.ID, address, in.failuresAtStart.NotListening[address])
	}
	return nil
}

// serveRelays starts the process that relays to this machine, and creates the file for its failures.
func (in *nsSession) serveRelays(ctx context.Context, relays []outlet.LoopbackRelay, file string) (err error) {
	failures := outlet.RelayFailures{NotListening: map[string]string{}}
	var (
		served []outlet.LoopbackRelay
		files  []*os.File
	)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, r := range relays {
		l, err := in.ns.ListenFile(ctx, r.Inside.String())
		switch {
		case err == nil:
			served, files = append(served, r), append(files, l)
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case !r.Optional:
			failures.NotListening[r.Inside.String()] = err.Error()
		}
	}
	report, err := outlet.CreateRelayFailures(file, failures)
	if err != nil {
		return err
	}
	defer report.Close()
	if len(served) == 0 {
		return nil
	}
	if err := in.ns.StartHelper(outlet.RelayProcess(served), append([]*os.File{report}, files...)...); err != nil {
		return fmt.Errorf("relays to the loopback of this machine: %w", err)
	}
	return nil
}

// checkNotRelayed refuses to forward ports that are relayed in the other direction: a connection would be relayed back
// to this machine.
func checkNotRelayed(outputs string, ports []Port) error {
	hosts, some := strings.CutPrefix(outputs, settings.HostsPrefix)
	if !some {
		return nil
	}
	rules, err := outlet.ParseRules(hosts)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if slices.ContainsFunc(rules.LoopbackRelays(), func(r outlet.LoopbackRelay) bool { return r.Inside.Port() == p.Inside }) {
			return &fault.InvalidError{What: "port", Value: strconv.Itoa(int(p.Inside)), Want: "a port of the sandbox: this one is relayed to this machine (--outputs " + outputs + ")"}
		}
	}
	return nil
}

// warnFailedRelays names the addresses of this machine that did not accept a connection since this command began.
func (in *nsSession) warnFailedRelays() {
	if in.relayFailures == nil {
		return
	}
	defer func() { in.relayFailures = nil }()
	defer in.relayFailures.Close()
	failures, err := outlet.ReadRelayFailures(in.relayFailures)
	if err != nil {
		in.sandbox.Repo.Warn("sandbox %s: %v", in.sandbox.ID, err)
	}
	for _, target := range slices.Sorted(maps.Keys(failures.Connections)) {
		if failed := failures.Connections[target]; failed.Count > in.failuresAtStart.Connections[target].Count {
			in.sandbox.Repo.Warn("sandbox %s: a connection to %s of this machine failed: %s", in.sandbox.ID, target, failed.Error)
		}
	}
}
