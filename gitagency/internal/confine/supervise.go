package confine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// init turns this process into a supervisor if it was started as one; then it does not return.
func init() {
	proc.Supervise(proc.Builder{
		Ready: ready,
		Raise: func(plan []byte) error { return built(plan, Raise) },
		Shut:  func(plan []byte) error { return built(plan, Shut) },
		Clear: func(plan []byte) error { return built(plan, Clear) },
	})
}

func built(plan []byte, build func(Plan) error) error {
	p, err := readPlan(plan)
	if err != nil {
		return fmt.Errorf("plan of the walls: %w", err)
	}
	return build(p)
}

// decodePlan decodes a plan. It caches the last one, because an init process decodes the same plan for every command.
func readPlan(text []byte) (Plan, error) {
	known.Lock()
	defer known.Unlock()
	if known.text == nil || !bytes.Equal(known.text, text) {
		var p Plan
		if err := json.Unmarshal(text, &p); err != nil {
			return Plan{}, err
		}
		known.text, known.plan = bytes.Clone(text), p
	}
	return known.plan, nil
}

var known struct {
	sync.Mutex
	text []byte
	plan Plan
}
