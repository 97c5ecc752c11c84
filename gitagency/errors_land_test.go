package gitagency

import (
	"fmt"
	"strings"
	"testing"
)

// Who lands several is told which of them stand, when one does not: also where a branch never holds still.
func TestWhatDoesNotLandSaysWhatStands(t *testing.T) {
	t.Parallel()
	for _, failed := range []func() error{
		func() error { return &ConflictsError{ID: "c", Conflicts: make([]Conflict, 1)} },
		func() error { return &MovingError{ID: "c", Branch: "main", Times: 3} },
		func() error { return &MovingError{ID: "c", Branch: "main", Times: 3, Verifying: true} },
	} {
		for want, stand := range map[string][]string{
			"; nothing ": nil,
			"; a has landed, and nothing else changed":        {"a"},
			"; a and b have landed, and nothing else changed": {"a", "b"},
		} {
			err := failed()
			setAlreadyLanded(fmt.Errorf("land c: %w", err), stand)
			if got := err.Error(); !strings.Contains(got, want) {
				t.Errorf("after %q: %s", stand, got)
			}
		}
	}
}
