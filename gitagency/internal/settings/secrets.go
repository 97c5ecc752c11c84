package settings

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// secretKey is the key with further patterns of untracked files that snapshots leave out.
const secretKey = "agency.secret"

// defaultSecrets are name patterns of common credential files.
var defaultSecrets = []string{".env*", "*.key", "*.pem", "credentials.json", "secrets.json"}

// SecretPatterns lists the name patterns of untracked files that snapshots leave out. The last pattern that a name
// matches counts; one that begins with "!" includes the file. An invalid pattern is an error: without it, files that it was
// meant for would be included.
func (r *Reader) SecretPatterns() ([]string, error) {
	return r.patterns(secretKey, defaultSecrets, checkSecretPattern)
}

// leaveKey is the key with patterns of untracked files that are never in the way of a landing.
const leaveKey = "agency.leave"

// LeavePatterns lists the patterns of untracked files, and of directories with them, that landings leave in the trash. An
// invalid pattern is an error: without it, files that it was meant for would land.
func (r *Reader) LeavePatterns() ([]string, error) {
	patterns, err := r.patterns(leaveKey, nil, checkLeavePattern)
	for i, p := range patterns {
		patterns[i] = strings.TrimSuffix(p, "/")
	}
	return patterns, err
}

// patterns returns the values of a key after its defaults. An empty value clears those before it.
func (r *Reader) patterns(key string, defaults []string, check func(string) error) ([]string, error) {
	patterns := slices.Clone(defaults)
	for _, s := range r.Config[CanonicalKey(key)] {
		if s.Value == "" {
			patterns = nil
			continue
		}
		var invalid *fault.InvalidError
		if errors.As(check(s.Value), &invalid) {
			return nil, InvalidSetting(key, s, invalid.Want)
		}
		patterns = append(patterns, s.Value)
	}
	return patterns, nil
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
