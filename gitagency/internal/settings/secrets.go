package settings

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
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

// copyKey is the key with patterns of ignored files that new sandboxes get copies of.
const copyKey = "agency.copy"

// CopyPatterns lists the patterns of ignored files of the integration worktree that new sandboxes get copies of, in the
// syntax of gitignore.
func (r *Reader) CopyPatterns() ([]string, error) {
	return r.patterns(copyKey, nil, checkCopyPattern)
}

// IsSharedCopyPattern reports whether a pattern comes only from configuration that all repositories share, some of which
// have no such file.
func (r *Reader) IsSharedCopyPattern(pattern string) bool {
	return !slices.ContainsFunc(r.Config[CanonicalKey(copyKey)], func(s config.Setting) bool {
		return s.Value == pattern && s.Scope != "system" && s.Scope != "global"
	})
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

// checkCopyPattern validates a value of agency.copy. The empty value is valid: it clears those before it. Values that
// gitignore accepts and that match no file are refused.
func checkCopyPattern(value string) error {
	pattern := strings.TrimPrefix(value, "!")
	components := strings.Split(strings.Trim(pattern, "/"), "/")
	unusable := func(name string) bool { return name == "" || name == "." || name == ".." }
	if value != "" && (strings.HasPrefix(value, "#") || strings.TrimSpace(pattern) != pattern || strings.ContainsAny(value, "\n\r\x00") || slices.ContainsFunc(components, unusable)) {
		return &fault.InvalidError{What: "pattern", Value: value, Want: "a pattern as in .gitignore, such as .env, node_modules or /config/local.*"}
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
