package engine

import (
	"context"
	"maps"
	"time"
)

// Pauses between two queries. Slurm asks its users not to query in short loops.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// poller makes the pauses between queries.
type poller struct {
	after func(time.Duration) <-chan time.Time // time.After, but in tests
}

// watch implements Driver.Watch: it calls list in pauses that grow while nothing changes.
func (p poller) watch(ctx context.Context, list func() ([]Status, error), changed func([]Status) bool, failed func(error)) error {
	var last map[string]Status
	pause := firstPause
	for {
		now, err := list()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if failed != nil {
				failed(err)
			}
		default:
			byName := map[string]Status{}
			for _, st := range now {
				byName[st.Name] = st
			}
			if last == nil || !maps.EqualFunc(last, byName, Status.equal) {
				if !changed(now) {
					return nil
				}
				last, pause = byName, firstPause
			}
		}
		if err := p.wait(ctx, pause); err != nil {
			return err
		}
		pause = min(pause*3/2, lastPause)
	}
}

// wait returns after a pause, or the cause of ctx when that has ended.
func (p poller) wait(ctx context.Context, pause time.Duration) error {
	after := p.after
	if after == nil {
		after = time.After
	}
	select {
	case <-after(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// equal reports whether two states are the same.
func (s Status) equal(t Status) bool {
	sameExit := (s.Exit == nil) == (t.Exit == nil) && (s.Exit == nil || *s.Exit == *t.Exit)
	s.Exit, t.Exit = nil, nil
	return sameExit && s == t
}
