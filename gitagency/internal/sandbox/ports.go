package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// ForwardRequest selects ports of a sandbox that become reachable from this machine.
type ForwardRequest struct {
	Ports []Port // required

	// Listening is called once all ports are reachable, with one address for each, in the order of Ports.
	Listening func(addresses []string) error

	// Failed is called for each connection that could not be made, at any time and from many goroutines. It may be
	// nil.
	Failed func(Port, error)
}

// Port is a port of a sandbox and the port of this machine that is forwarded to it.
type Port struct {
	Inside  uint16
	Outside uint16 // 0: any free port
}

// PortTakenError reports a port of this machine that is in use, or that is reserved for root.
type PortTakenError struct {
	Port     Port
	Reserved bool // reserved for root
}

func (e *PortTakenError) Error() string {
	if e.Reserved {
		return fmt.Sprintf("port %d of this machine is privileged; only root can listen on it", e.Port.Outside)
	}
	return fmt.Sprintf("port %d of this machine is in use already", e.Port.Outside)
}

// ParsePort parses "P" or "P:H", a port of a sandbox and a port of this machine. "P" stands for "P:P".
func ParsePort(text string) (Port, error) {
	inside, outside, two := strings.Cut(text, ":")
	if !two {
		outside = inside
	}
	in, inErr := strconv.ParseUint(inside, 10, 16)
	out, outErr := strconv.ParseUint(outside, 10, 16)
	if inErr != nil || outErr != nil || in == 0 || strings.HasPrefix(inside, "+") || strings.HasPrefix(outside, "+") {
		return Port{}, &fault.InvalidError{What: "port", Value: text, Want: "<port>[:<host port>], numbers from 1 to 65535; host port 0 is any free port"}
	}
	return Port{uint16(in), uint16(out)}, nil
}

// Forward makes ports of the sandbox reachable on 127.0.0.1, for all users of this machine. It returns nil when the
// last command in the sandbox has ended, and the cause of ctx when that ends first; it has closed all connections
// then. It does not keep the sandbox from being discarded.
func (s *Sandbox) Forward(ctx context.Context, req ForwardRequest) (err error) {
	inv := core.InvocationFromEntry(s.Repo.Store.Invocation(s.Repo.ID, s.ID, nil), nil)
	if _, err := inv.Path(); err != nil {
		return err
	}
	if inv.Primitives.Outputs == settings.OutputsOpen {
		return &fault.SharedNetworkError{ID: s.ID}
	}
	if err := checkNotRelayed(inv.Primitives.Outputs, req.Ports); err != nil {
		return err
	}
	ns, err := proc.ObserveNamespace(ctx, s.Repo.Store.InvocationDir(s.Repo.ID, s.ID))
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, proc.ErrNoNamespace):
		return &fault.NothingRunsError{ID: s.ID}
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()

	forwarding, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	listeners, err := listenOutside(forwarding, req.Ports)
	if err != nil {
		return err
	}
	addresses := []string{}
	for i, l := range listeners {
		addresses = append(addresses, l.Addr().String())
		failed := func(err error) {
			if req.Failed != nil {
				req.Failed(req.Ports[i], err)
			}
		}
		all.Go(func() {
			err := outlet.Forward(forwarding, l, func(ctx context.Context) (net.Conn, error) { return dialInside(ctx, ns, req.Ports[i].Inside) }, failed)
			if err != nil {
				cancel(fmt.Errorf("port %d: %w", req.Ports[i].Inside, err))
			}
		})
	}
	if req.Listening != nil {
		if err := req.Listening(addresses); err != nil {
			return err
		}
	}
	return ns.Wait(forwarding)
}

// listenOutside listens on all ports, or on none.
func listenOutside(ctx context.Context, ports []Port) (listeners []net.Listener, err error) {
	for _, p := range ports {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Outside)))
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
		if err == nil {
			listeners = append(listeners, l)
			continue
		}
		for _, l := range listeners {
			_ = l.Close()
		}
		if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
			return nil, &PortTakenError{Port: p, Reserved: errors.Is(err, syscall.EACCES)}
		}
		return nil, err
	}
	return listeners, nil
}

// dialInside connects to a port in the sandbox, on 127.0.0.1 or else ::1.
func dialInside(ctx context.Context, ns *proc.Namespace, port uint16) (net.Conn, error) {
	number := strconv.Itoa(int(port))
	conn, err := ns.Dial(ctx, net.JoinHostPort("127.0.0.1", number))
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	if conn, err6 := ns.Dial(ctx, net.JoinHostPort("::1", number)); err6 == nil {
		return conn, nil
	}
	return nil, err
}
