package git

import (
	"cmp"
	"context"
	"time"
)

// LockWait says how long to wait for the lock of a running git. The zero value is the default.
type LockWait struct {
	Timeout time.Duration // limit; zero is a second
	OnWait  func()        // test hook, called before each pause
}

// Until waits for done to return true, but not for long: the lock may be stale. It waits once even if the first call of done
// takes longer than the timeout, as on a busy machine. A timeout is no error: the caller checks again, or its next step
// fails. The error is that of ctx.
func (w LockWait) Until(ctx context.Context, done func() bool) error {
	const first, longest = time.Millisecond, 20 * time.Millisecond
	patience, began := cmp.Or(w.Timeout, time.Second), time.Now()
	for pause := first; !done() && (pause == first || time.Since(began) < patience); pause = min(2*pause, longest) {
		if w.OnWait != nil {
			w.OnWait()
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
