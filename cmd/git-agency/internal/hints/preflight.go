package hints

import (
	"errors"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// preflightHints returns the remedies of the checks that failed before a run, each with the name of its check.
func preflightHints(err error, retry Retry) []string {
	var failed *gitagency.PreflightError
	if !errors.As(err, &failed) {
		return nil
	}
	lines := []string{}
	for _, c := range failed.Checks {
		if remedy := Remedy(c, retry); remedy != "" {
			lines = append(lines, c.Name+": "+remedy)
		}
	}
	return lines
}

// Remedy returns what to do about a check that failed: its own remedy, else the hints on its error; empty if there are
// none.
func Remedy(c gitagency.PreflightCheck, retry Retry) string {
	if c.Remedy != "" || c.Err == nil {
		return c.Remedy
	}
	return strings.Join(For(c.Err, retry), "; ")
}
