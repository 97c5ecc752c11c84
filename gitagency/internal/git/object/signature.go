package object

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// IdentitySource is what the caller knows about the author and committer of a commit. Git determines empty fields as
// for any commit.
type IdentitySource struct {
	Name, Email string // override git's configuration and Env
	Env         []string
	Now         time.Time // date of commits for which Env sets none
}

// IsVerbatimIdent reports whether git writes a name or an email unchanged: it trims certain characters at both ends,
// and removes angle brackets and control characters.
func IsVerbatimIdent(text string) bool {
	const around = ".,:;<>\"\\'"
	return text != "" && text == strings.Trim(text, around) && !strings.ContainsAny(text[:1]+text[len(text)-1:], " ") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == '<' || c == '>' || c == 0x7f || c == utf8.RuneError })
}

// FormatDate formats a time as git writes it into commits.
func FormatDate(at time.Time) string { return fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700")) }

// ParseSignature reads "<name> <<email>> <seconds> <zone>"; git lets no angle bracket into the name and the email.
func ParseSignature(line string) (Signature, error) {
	before, when, ok := strings.Cut(line, "> ")
	name, email, is := strings.Cut(before, "<")
	if !ok || !is || strings.Contains(line, "\n") {
		return Signature{}, fmt.Errorf("git var answered %q", line)
	}
	return Signature{Identity: Identity{Name: strings.TrimSuffix(name, " "), Email: email}, When: when}, nil
}

// Signature is an author or committer with a date.
type Signature struct {
	Identity
	When string // git's raw format: "<seconds> <zone>"
}

func (s Signature) String() string {
	return fmt.Sprintf("%s <%s> %s", cleanIdent(s.Name), cleanIdent(s.Email), s.When)
}

// cleanIdent removes from a name or email address the characters that git removes: control characters, angle brackets, and
// leading and trailing punctuation.
func cleanIdent(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, name)
	return strings.Trim(name, " .,:;\"'\\")
}
