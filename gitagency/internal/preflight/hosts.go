package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
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

// checkHosts checks that the outputs of the sandbox allow the hosts that the agent needs.
func checkHosts(_ context.Context, s *subject) result {
	needed, err := s.neededHosts()
	if err != nil {
		return failedBy(fmt.Errorf("hosts of %s: %w", s.agent.name, err))
	}
	listed, some := strings.CutPrefix(s.prims.Outputs, settings.HostsPrefix)
	switch {
	case s.prims.Outputs == settings.OutputsOpen:
		return passed("all hosts can be reached")
	case needed.IsEmpty():
		return passed("it is not known which hosts the command needs; outputs %s", s.prims.Outputs)
	}
	var allowed outlet.Rules
	if some {
		if allowed, err = outlet.ParseRules(listed); err != nil {
			return failedBy(err)
		}
	}
	missing := allowed.Missing(needed)
	if missing.IsEmpty() {
		return passed("%s can be reached", needed)
	}
	all := slices.DeleteFunc([]string{allowed.String(), missing.String()}, func(list string) bool { return list == "" })
	return result{
		failed: true, reason: fmt.Sprintf("%s needs %s, which outputs %s does not allow", s.agent.name, missing, s.prims.Outputs),
		remedy: "--outputs " + quote.Shell(settings.HostsPrefix+strings.Join(all, ",")),
	}
}

// connectTimeout bounds the connection to one host.
const connectTimeout = 10 * time.Second

// checkOnline connects to the hosts that the agent needs, and sends nothing but what TCP and TLS need.
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
	return passed("%s answer", strings.Join(targets, ", "))
}

// connect connects to a host, by TLS if the port is that of HTTPS.
func connect(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	var conn net.Conn
	if port == "443" {
		conn, err = (&tls.Dialer{Config: &tls.Config{ServerName: host}}).DialContext(ctx, "tcp", target)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", target)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return conn.Close()
}
