package creation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkRunner refuses an agent that is neither known nor configured, which is probably misspelt.
func checkRunner(r *core.Repository, name string) error {
	if name == "" || slices.Contains(runner.KnownNames(), name) { // needs no configuration, which may have warnings
		return nil
	}
	if slices.Contains(r.Settings.Runners(), name) {
		return nil
	}
	return UnknownRunnerError(name, r.Settings.Runners())
}

// UnknownRunnerError returns the error for an agent that is not among those that can be named.
func UnknownRunnerError(name string, known []string) error {
	return &fault.InvalidError{What: "runner", Value: name, Known: known, Want: fmt.Sprintf("one of %s, or another after: git config --global %s <command>",
		strings.Join(known, ", "), quote.Shell("agency."+name+".command"))}
}
