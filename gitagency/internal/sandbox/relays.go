package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

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
	if !in.ns.Created {
		for _, r := range in.walls.rules.LoopbackRelays() {
			if !r.Optional && !slices.Contains(in.walls.applied.Relayed, r.Inside.String()) {
				in.sandbox.Repo.Warn("sandbox %s: %s is not relayed to this machine until the commands that run there have ended", in.sandbox.ID, r.Inside)
			}
		}
		return nil
	}
	var (
		relays []outlet.LoopbackRelay
		files  []*os.File
	)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, r := range in.walls.rules.LoopbackRelays() {
		l, err := in.ns.ListenFile(ctx, r.Inside.String())
		switch {
		case err == nil:
			relays, files = append(relays, r), append(files, l)
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case !r.Optional:
			in.sandbox.Repo.Warn("sandbox %s: %s is not relayed to this machine: %v", in.sandbox.ID, r.Inside, err)
		}
	}
	if len(relays) == 0 {
		return nil
	}
	reports, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	if err := in.ns.StartHelper(outlet.RelayProcess(relays), append([]*os.File{report}, files...)...); err != nil {
		_ = reports.Close()
		return fmt.Errorf("relays to the loopback of this machine: %w", err)
	}
	in.relays = reports
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

// warnFailedRelays names the addresses of this machine that did not accept a connection.
func (in *nsSession) warnFailedRelays() {
	if in.relays == nil {
		return
	}
	defer func() { in.relays = nil }()
	defer in.relays.Close()
	raw, err := in.relays.SyscallConn()
	if err != nil {
		return
	}
	text := make([]byte, 64<<10) // all that a pipe holds
	_ = raw.Read(func(fd uintptr) bool {
		n, _ := syscall.Read(int(fd), text) // without waiting: the descriptor does not block
		text = text[:max(n, 0)]
		return true
	})
	warned := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		targets, why, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if target, _, _ := strings.Cut(targets, ","); !warned[target] {
			warned[target] = true
			in.sandbox.Repo.Warn("sandbox %s: a connection to %s of this machine failed: %s", in.sandbox.ID, target, why)
		}
	}
}
