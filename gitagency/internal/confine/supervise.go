package confine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// init turns this process into a supervisor if it was started as one; then it does not return.
func init() {
	proc.Supervise(proc.WallBuilder{
		Prepare: seccomp.Prepare,
		Apply:   func(plan []byte) error { return withPlan(plan, Apply) },
		Restrict: func(plan []byte, inRoot bool) error {
			return withPlan(plan, func(p walls.Plan) error {
				if !inRoot {
					p = p.OnMachine()
				}
				return Restrict(p)
			})
		},
		Dismantle: func(plan []byte) error { return withPlan(plan, UnmountOverlays) },
	})
}

func withPlan(plan []byte, build func(walls.Plan) error) error {
	p, err := decodePlan(plan)
	if err != nil {
		return fmt.Errorf("plan of the walls: %w", err)
	}
	return build(p)
}

// decodePlan decodes a plan. It caches the last one, because an init process decodes the same plan for every command.
func decodePlan(text []byte) (walls.Plan, error) {
	planCache.Lock()
	defer planCache.Unlock()
	if planCache.text == nil || !bytes.Equal(planCache.text, text) {
		var p walls.Plan
		if err := json.Unmarshal(text, &p); err != nil {
			return walls.Plan{}, err
		}
		planCache.text, planCache.plan = bytes.Clone(text), p
	}
	return planCache.plan, nil
}

var planCache struct {
	sync.Mutex
	text []byte
	plan walls.Plan
}
