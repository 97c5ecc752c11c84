package landing

import (
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// reportResolve prints that an agent begins to resolve conflicts, or has resolved them.
func (t Commands) reportResolve(p gitagency.ResolveProgress) {
	agent := term.OneLine(p.Agent)
	if p.Resolved {
		fmt.Fprintf(t.Stderr, "%s resolved the conflicts of %s\n", agent, p.ID)
		return
	}
	fmt.Fprintf(t.Stderr, "%s resolves the conflicts of %s in %s; 'git agency logs -f %s' shows its output\n", agent, p.ID, format.Count(p.Paths, "path", "paths"), p.ID)
}

// warnUnresolved says what the agent did that was to resolve the conflicts of one of several landings.
func (t Commands) warnUnresolved(err error) {
	var unresolved *gitagency.UnresolvedError
	if errors.As(err, &unresolved) {
		t.Warn(term.Printable(unresolved.Error()))
	}
}
