package confine

import (
	"encoding/json"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Whoever can plan walls can build them: this very program, when it was started as a supervisor, does so here
// and goes no further.
func init() {
	proc.Supervise(proc.Builder{
		Raise: func(plan []byte) error { return built(plan, Raise) },
		Shut:  func(plan []byte) error { return built(plan, Shut) },
		Clear: func(plan []byte) { _ = built(plan, Clear) }, // what stays, the kernel takes down by and by
	})
}

func built(plan []byte, build func(Plan) error) error {
	var p Plan
	if err := json.Unmarshal(plan, &p); err != nil {
		return fmt.Errorf("plan of the walls: %w", err)
	}
	return build(p)
}
