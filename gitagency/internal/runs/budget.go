package runs

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// budgetError is the cause of the end of a run that exceeded its budget.
type budgetError struct {
	option string // that set the limit
	what   string
}

func (e *budgetError) Error() string { return "it exceeded its budget: " + e.what }

func invalidBudget() error {
	return &fault.InvalidError{What: "budget", Want: "limits that are not negative"}
}

// warnUncounted warns about limits of what the agent spends if it does not tell that.
func warnUncounted(r *core.Repository, agent string, limits store.Budget) {
	if (limits.CostUSD > 0 || limits.Tokens > 0) && !HasStream(r, agent) {
		r.Warn("--max-cost and --max-tokens have no effect: %s does not tell what it spends", cmp.Or(agent, "the command"))
	}
}

// budget ends a run that costs or writes too much. Cost and tokens are known as far as the stream of the agent tells them,
// and count over all runs of the invocation; the output counts in each run.
type budget struct {
	limits store.Budget
	before store.RunFields // from before this run
	end    context.CancelCauseFunc

	mu     sync.Mutex
	output int64 // bytes written so far
}

// spend checks what the stream of the agent told so far.
func (b *budget) spend(s runner.Summary) {
	cost, tokens := b.before.CostUSD+s.CostUSD, b.before.Tokens+s.Tokens
	if s.OfSession {
		cost, tokens = s.CostUSD, s.Tokens
	}
	switch {
	case b.limits.CostUSD > 0 && cost > b.limits.CostUSD:
		b.end(&budgetError{"--max-cost", fmt.Sprintf("it cost $%.2f, and --max-cost is %.2f", cost, b.limits.CostUSD)})
	case b.limits.Tokens > 0 && tokens > b.limits.Tokens:
		b.end(&budgetError{"--max-tokens", fmt.Sprintf("it used %d tokens, and --max-tokens is %d", tokens, b.limits.Tokens)})
	}
}

// write counts output of the agent.
func (b *budget) write(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.output += int64(n)
	if b.limits.Output > 0 && b.output > b.limits.Output {
		b.end(&budgetError{"--max-output", fmt.Sprintf("it wrote more than --max-output, %d bytes", b.limits.Output)})
	}
}
