package sandbox

import (
	"testing"
	"time"
)

func TestImportTimeoutFollowsCommand(t *testing.T) {
	t.Parallel()
	for command, want := range map[time.Duration]time.Duration{
		-1: 0, 0: 0, time.Millisecond: 10 * time.Second, 20 * time.Second: 20 * time.Second,
	} {
		if got := importTimeout(command); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
}
