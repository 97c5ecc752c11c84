package settings

import (
	"path"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// secretKey is the key with further patterns of untracked files that snapshots leave out.
const secretKey = "agency.secret"

// defaultSecrets are name patterns of common credential files.
var defaultSecrets = []string{".env*", "*.key", "*.pem", "credentials.json", "secrets.json"}

// SecretPatterns lists the name patterns of untracked files that snapshots leave out. The last pattern that a name
// matches counts; one that begins with "!" includes the file.
func (r *Reader) SecretPatterns() []string {
	patterns := defaultSecrets
	for _, s := range r.Config[CanonicalKey(secretKey)] {
		if s.Value == "" { // clears the patterns before it, also the defaults
			patterns = nil
			continue
		}
		if err := checkSecretPattern(s.Value); err != nil {
			r.Warn("ignoring %s = %q (%s): %v", secretKey, s.Value, s.Origin, err)
			continue
		}
		patterns = append(patterns[:len(patterns):len(patterns)], s.Value)
	}
	return patterns
}

// leaveKey is the key with patterns of untracked files that are never in the way of a landing.
const leaveKey = "agency.leave"

// LeavePatterns lists the patterns of untracked files, and of directories with them, that landings leave in the trash.
func (r *Reader) LeavePatterns() (patterns []string) {
	for _, s := range r.Config[CanonicalKey(leaveKey)] {
		if s.Value == "" { // clears the patterns before it
			patterns = nil
			continue
		}
		if err := checkLeavePattern(s.Value); err != nil {
			r.Warn("ignoring %s = %q (%s): %v", leaveKey, s.Value, s.Origin, err)
			continue
		}
		patterns = append(patterns, strings.TrimSuffix(s.Value, "/"))
	}
	return patterns
}

// checkLeavePattern validates a value of agency.leave. The empty value is valid: it clears those before it.
func checkLeavePattern(value string) error {
	if _, err := path.Match(strings.TrimPrefix(value, "!"), ""); err != nil {
		return &fault.InvalidError{What: "pattern", Value: value, Want: "a pattern such as TASK.md, *.o or build/"}
	}
	return nil
}

// checkSecretPattern validates a value of agency.secret. The empty value is valid: it clears those before it.
func checkSecretPattern(value string) error {
	if _, err := path.Match(strings.TrimPrefix(value, "!"), ""); err != nil {
		return &fault.InvalidError{What: "pattern", Value: value, Want: "a pattern such as *.pem, or !*.pem to include such files again"}
	}
	return nil
}
