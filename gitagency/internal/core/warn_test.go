package core_test

import (
	"reflect"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
)

// WithWarn copies all fields but those that belong to the warnings.
func TestWithWarnKeepsTheRest(t *testing.T) {
	t.Parallel()
	r, _ := coretest.Open(t, core.Options{})
	var got []string
	other := r.WithWarn(func(message string) { got = append(got, message) })
	other.Warn("%d", 1)
	other.Settings.Warn("%d", 2)
	if len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("got %q", got)
	}
	was, now := reflect.ValueOf(r).Elem(), reflect.ValueOf(other).Elem()
	for i := range was.NumField() {
		switch name := was.Type().Field(i).Name; name {
		case "warnedElsewhere", "Opts", "Settings", "ids":
		default:
			if !was.Field(i).Equal(now.Field(i)) {
				t.Errorf("%s differs", name)
			}
		}
	}
}
