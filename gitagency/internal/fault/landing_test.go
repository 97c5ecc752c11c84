package fault

import (
	"fmt"
	"strings"
	"testing"
)

// A landing of several sandboxes that fails names those that have landed, also if it fails because the branch moves
// all the time.
func TestLandErrorsNameLandedSandboxes(t *testing.T) {
	t.Parallel()
	for _, failed := range []func() error{
		func() error { return &ConflictsError{ID: "c", Conflicts: make([]Conflict, 1)} },
		func() error { return &KeepsMovingError{ID: "c", Branch: "main", Times: 3} },
		func() error { return &KeepsMovingError{ID: "c", Branch: "main", Times: 3, Verifying: true} },
	} {
		for want, stand := range map[string][]string{
			"; nothing ": nil,
			"; a has landed, and nothing else changed":        {"a"},
			"; a and b have landed, and nothing else changed": {"a", "b"},
		} {
			err := failed()
			SetAlreadyLanded(fmt.Errorf("land c: %w", err), stand)
			if got := err.Error(); !strings.Contains(got, want) {
				t.Errorf("after %q: %s", stand, got)
			}
		}
	}
}
