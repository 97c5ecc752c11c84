package runs

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// An agent that tells its cost in its last line exits before it can be ended.
func TestDecideFailsBudgetOfProgramThatEndedByItself(t *testing.T) {
	a := &attempt{sandbox: &sandbox.Sandbox{Tree: t.TempDir()}}
	end := ending{exec: sandbox.ExecResult{ContainedBy: "pid-namespace"}, exceeded: &budgetError{"--max-cost", "it cost $2.00"}}
	var res Result
	a.decide(t.Context(), &res, end, runner.Summary{Complete: true})
	if res.Status != store.StatusFailed || res.ExitCode != ExitFailed || res.Reason != end.exceeded.Error() {
		t.Errorf("got %s, %d, %q", res.Status, res.ExitCode, res.Reason)
	}
}
