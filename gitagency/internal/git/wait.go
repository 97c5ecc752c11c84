package git

import (
	"cmp"
	"context"
	"time"
)

// waiting is how somebody waits for a git that is at work. The zero value is right.
type waiting struct {
	patience time.Duration // how long at most; zero is a second
	seen     func()        // for tests: it is about to wait
}

// until waits while something is so, but not for long: a lock may be one that was left behind. Whoever asks looks again, or
// is told by what he does next. It is only an error when ctx ends.
func (w waiting) until(ctx context.Context, done func() bool) error {
	const first, longest = time.Millisecond, 20 * time.Millisecond
	patience, began := cmp.Or(w.patience, time.Second), time.Now()
	for pause := first; !done() && time.Since(began) < patience; pause = min(2*pause, longest) {
		if w.seen != nil {
			w.seen()
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return nil
}
