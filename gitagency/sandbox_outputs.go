package gitagency

import (
	"context"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Where a sandbox with some hosts finds the way out: the first command where people expect it, each that comes
// meanwhile anywhere. A way out ends with its command, and with it what goes through it.
const (
	proxyAddress    = "127.0.0.1:3128"
	anyProxyAddress = "127.0.0.1:0"
)

// outputs serves the way out for as long as we are in the room.
func (s *Sandbox) outputs(ctx context.Context, room *proc.Room, w *walls) (end func(), err error) {
	if w.plan.Network != confine.ProxiedOnly {
		return func() {}, nil
	}
	address := anyProxyAddress
	if room.Opened {
		address = proxyAddress
	}
	l, err := room.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	w.proxy = l.Addr().String()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	proxy := &outlet.Proxy{Rules: w.rules, Denied: func(d outlet.Denial) { s.recordDenial(d) }}
	go func() {
		defer close(done)
		if err := proxy.Serve(serving, l); err != nil {
			s.repo.warn("proxy of %s: %v", s.ID, err)
		}
	}()
	return func() { stop(); <-done }, nil
}

// recordDenial adds to the history of the invocation what was refused.
func (s *Sandbox) recordDenial(d outlet.Denial) {
	s.repo.record(s.ID, denialEvent{
		Time: d.Time.UTC().Truncate(time.Second), Event: deniedEvent, Kind: d.Kind, Target: d.Target,
		Reason: d.Reason, Allow: d.Allow, Count: d.Count,
	})
}

const deniedEvent = "denied"

type denialEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Allow  string    `json:"allow"` // what would have to be among the outputs
	Count  int       `json:"count"` // how often that proxy has refused it by now
}
