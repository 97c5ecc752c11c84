package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// Addresses of the proxy of a sandbox whose outputs are a list of hosts. The first command gets the customary port,
// concurrent ones any port. A proxy and its connections end with its command.
const (
	proxyAddress    = "127.0.0.1:3128"
	anyProxyAddress = "127.0.0.1:0"
)

// refusedTargets collects the targets that a proxy refused, each once.
type refusedTargets struct {
	mu      sync.Mutex
	targets []string
}

func (r *refusedTargets) add(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.targets, target) {
		r.targets = append(r.targets, target)
	}
}

func (r *refusedTargets) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.targets)
}

// serveProxy runs the proxy of a sandbox until end is called, if its outputs need one. It sets w.proxyAddr, and adds what
// the proxy refuses to refused.
func (s *Sandbox) serveProxy(ctx context.Context, ns *proc.Namespace, w *Walls, refused *refusedTargets) (end func(), err error) {
	if w.plan.Network != walls.ProxiedOnly {
		return func() {}, nil
	}
	address := anyProxyAddress
	if ns.Created && !slices.Contains(w.plan.Relayed, proxyAddress) {
		address = proxyAddress
	}
	l, err := ns.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	w.proxyAddr = l.Addr().String()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	proxy := &outlet.Server{Rules: w.rules, OnDenied: func(d outlet.Denial) {
		refused.add(d.Target)
		s.recordDenial(d)
	}}
	go func() {
		defer close(done)
		if err := proxy.Serve(serving, l); err != nil {
			s.Repo.Warn("proxy of %s: %v", s.ID, err)
		}
	}()
	return func() { stop(); <-done }, nil
}

// recordDenial appends a refused connection to the history of the invocation.
func (s *Sandbox) recordDenial(d outlet.Denial) {
	s.Repo.AppendEvent(s.ID, denialEvent{
		Time: d.Time.UTC().Truncate(time.Millisecond), Event: deniedEvent, Kind: d.Kind, Target: d.Target,
		Reason: d.Reason, Allow: d.AllowEntry, Count: d.Count,
	})
}

const deniedEvent = "denied"

type denialEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Allow  string    `json:"allow"` // entry of the outputs host list that would allow it
	Count  int       `json:"count"` // number of refusals by that proxy so far
}
