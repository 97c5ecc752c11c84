package settings

import (
	"errors"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

func TestParseReadLimits(t *testing.T) {
	t.Parallel()
	all := readlimit.Default()
	some := all
	some.Time, some.Inflated = 90*time.Second, 3<<30
	for text, want := range map[string]readlimit.Limits{
		"":                       all,
		defaultReadLimits:        all,
		"time=90s inflated=3g":   some,
		"inflated=3g,time=1m30s": some,
	} {
		if got, err := parseReadLimits(text); err != nil || got != want {
			t.Errorf("parseReadLimits(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"time", "time=", "time=0", "time=-1", "time=1ms", "memory=0", "memory=x", "speed=1", "=", "2g"} {
		if _, err := parseReadLimits(text); !errors.As(err, new(*fault.InvalidError)) {
			t.Errorf("parseReadLimits(%q) = %v; want an InvalidError", text, err)
		}
	}
	_, err := parseReadLimits("speed=1")
	if want := `invalid limits "speed=1": want a limit of time, memory, output or inflated, such as memory=2g, instead of "speed=1"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
