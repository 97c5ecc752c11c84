package gitagency

import (
	"path"
	"strings"
)

// secretKey is the setting that says what an untracked file is called that no snapshot takes unless told to.
const secretKey = "agency.secret"

// defaultSecrets are what credentials are mostly called.
var defaultSecrets = []string{".env*", "*.key", "*.pem", "credentials.json", "secrets.json"}

// SecretPatterns lists what untracked files are called that a snapshot leaves out. The last one that a name matches
// counts, and one that begins with "!" lets it in.
func (r *Repository) SecretPatterns() []string {
	patterns := defaultSecrets
	for _, s := range r.git.Config[canonical(secretKey)] {
		if s.Value == "" { // forgets those before it, also ours
			patterns = nil
			continue
		}
		if err := checkSecret(s.Value); err != nil {
			r.warn("ignoring %s = %q (%s): %v", secretKey, s.Value, s.Origin, err)
			continue
		}
		patterns = append(patterns[:len(patterns):len(patterns)], s.Value)
	}
	return patterns
}

// checkSecret also takes the empty value, which forgets those before it.
func checkSecret(value string) error {
	if _, err := path.Match(strings.TrimPrefix(value, "!"), ""); err != nil {
		return &InvalidError{What: "pattern", Value: value, Want: "a pattern such as *.pem, or !*.pem for what is let in"}
	}
	return nil
}
