package settings

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// preflightSection is the subsection of the keys with the user's own checks (agency.preflight.<name>).
const preflightSection = "preflight"

// OwnCheck is a check of the user that has to succeed before an agent is run.
type OwnCheck struct {
	Name    string
	Key     string // key that sets it
	Command string // line for a shell
}

// OwnChecks returns the checks that the user configured, by name. A check in the repository's own config is ignored with a
// warning: an agent may have written it. An empty value removes a check of a wider scope.
func (r *Reader) OwnChecks() []OwnCheck {
	var checks []OwnCheck
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		name := cutPrefixSuffix(key, "agency."+preflightSection+".", "")
		if name == "" || strings.Contains(name, ".") {
			continue
		}
		if command, set := r.trustedCommand(key); set && command != "" {
			checks = append(checks, OwnCheck{Name: name, Key: key, Command: command})
		}
	}
	return checks
}

const defaultOwnCheckTimeout = 30 * time.Second

// OwnCheckTimeout returns the time limit of one of OwnChecks: agency.operationTimeout, else 30 seconds. Negative is no
// limit.
func (r *Reader) OwnCheckTimeout() (time.Duration, error) {
	return r.Duration("agency.operationTimeout", defaultOwnCheckTimeout, ParseTimeout)
}
