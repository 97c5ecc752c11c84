package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// neededHosts returns the hosts that the agent needs; none if they are not known.
func (s *subject) neededHosts() (outlet.Rules, error) {
	if s.agent.spec == nil || s.agent.spec.Hosts == nil {
		return outlet.Rules{}, nil
	}
	hosts := s.agent.spec.Hosts(s.repo.Opts.Env)
	if len(hosts) == 0 {
		return outlet.Rules{}, nil
	}
	return outlet.ParseRules(strings.Join(hosts, ","))
}

// checkHosts checks that the outputs of the sandbox allow the hosts that the agent needs. A run adds them to a list of
// hosts, but it cannot add them to none.
func checkHosts(_ context.Context, s *subject) result {
	needed, err := s.neededHosts()
	if err != nil {
		return failedBy(fmt.Errorf("hosts of %s: %w", s.agent.name, err))
	}
	listed, isList := strings.CutPrefix(s.prims.Outputs, settings.HostsPrefix)
	switch {
	case s.prims.Outputs == settings.OutputsOpen:
		return passed("the outputs do not restrict them")
	case needed.IsEmpty():
		return passed("it is not known which hosts the command needs; outputs %s", s.prims.Outputs)
	case !isList:
		return result{
			failed: true, reason: fmt.Sprintf("%s needs %s, and outputs %s does not allow that", s.agent.name, needed, s.prims.Outputs),
			remedy: "--outputs " + quote.Shell(settings.HostsPrefix+needed.String()),
		}
	}
	allowed, err := outlet.ParseRules(listed)
	if err != nil {
		return failedBy(err)
	}
	if missing := allowed.Missing(needed); !missing.IsEmpty() {
		return passed("a run adds %s to the outputs", missing)
	}
	return passed("%s can be reached", needed)
}

// connectTimeout bounds the connection to one host.
const connectTimeout = 10 * time.Second

// checkOnline connects to the hosts that the agent needs, and sends nothing to them.
func checkOnline(ctx context.Context, s *subject) result {
	needed, err := s.neededHosts()
	if err != nil {
		return failedBy(err)
	}
	targets := needed.Targets()
	if len(targets) == 0 {
		return passed("it is not known which hosts the command needs")
	}
	failures := make([]error, len(targets))
	var group sync.WaitGroup
	for i, target := range targets {
		group.Go(func() { failures[i] = connect(ctx, target) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return result{failed: true, reason: strings.ReplaceAll(err.Error(), "\n", "; "), remedy: "check the network of this machine, its DNS and its proxy"}
	}
	return passed("a connection was possible: %s", strings.Join(targets, ", "))
}

// connect opens and closes a TCP connection. It does not negotiate TLS: crypto/tls would add 2 MB to the program, and
// 0.4 ms to the start of every command.
func connect(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return conn.Close()
}
