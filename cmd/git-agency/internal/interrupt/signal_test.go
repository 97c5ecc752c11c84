package interrupt

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatedSignalCountsOnce checks which signals count as the second interrupt: not the copy of the first that git
// forwards, whatever comes in between.
func TestRepeatedSignalCountsOnce(t *testing.T) {
	t.Parallel()
	type arrival struct {
		signal syscall.Signal
		after  time.Duration // after the signal before it
	}
	for name, c := range map[string]struct {
		arrivals []arrival
		second   bool
	}{
		"one signal":                   {[]arrival{{syscall.SIGINT, 0}}, false},
		"forwarded at once":            {[]arrival{{syscall.SIGINT, 0}, {syscall.SIGINT, 0}}, false},
		"forwarded late":               {[]arrival{{syscall.SIGINT, 0}, {syscall.SIGINT, 200 * time.Millisecond}}, false},
		"again after a moment":         {[]arrival{{syscall.SIGINT, 0}, {syscall.SIGINT, 300 * time.Millisecond}}, true},
		"forwarded, then once more":    {[]arrival{{syscall.SIGINT, 0}, {syscall.SIGINT, 0}, {syscall.SIGINT, time.Second}}, true},
		"another signal":               {[]arrival{{syscall.SIGINT, 0}, {syscall.SIGTERM, 0}}, true},
		"forwarded and another signal": {[]arrival{{syscall.SIGTERM, 0}, {syscall.SIGTERM, 0}, {syscall.SIGINT, 0}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signals, second := make(chan os.Signal, 2), make(chan struct{})
				ctx, cancel := context.WithCancelCause(t.Context())
				go awaitSignals(signals, func(s syscall.Signal) { cancel(errors.New(s.String())) }, func() { close(second) })
				for _, a := range c.arrivals {
					time.Sleep(a.after)
					signals <- a.signal
					synctest.Wait()
				}
				if got := context.Cause(ctx).Error(); got != c.arrivals[0].signal.String() {
					t.Errorf("the cause is %s", got)
				}
				select {
				case <-second:
					if !c.second {
						t.Error("it counts as the second interrupt")
					}
				default:
					if c.second {
						t.Error("it does not count as the second interrupt")
					}
				}
				close(signals)
			})
		})
	}
}
