package terminal

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain catches signals that are ignored, as by nohup and by a shell that runs "make test &": programs inherit
// an ignored signal, and start with the default action for one that is caught.
func TestMain(m *testing.M) {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}
