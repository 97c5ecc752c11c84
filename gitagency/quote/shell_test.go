package quote

import (
	"os/exec"
	"strings"
	"testing"
)

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"plain/path-1.lock": "plain/path-1.lock",
		"":                  "''",
		"a b":               "'a b'",
		"it's":              `'it'\''s'`,
		"$(touch x)`x`":     "'$(touch x)`x`'",
		"=ls":               "'=ls'",
		"~":                 "'~'",
		"grün":              "'grün'",
		"a\nb":              `$'a\012b'`,
		"\x1b[2J'\\":        `$'\033[2J\'\\'`,
		"\xff":              `$'\377'`,
		"\u202eevil":        `$'\342\200\256evil'`,
	} {
		if got := Shell(word); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", word, got, want)
		}
	}
}

func FuzzShellQuote(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("bash is needed: other shells lack $'…' quoting")
	}
	f.Add("a'b\\c\n$x`y`\x1b\xff")
	f.Fuzz(func(t *testing.T, word string) {
		if strings.Contains(word, "\x00") {
			return // paths have no NUL
		}
		quoted := Shell(word)
		if strings.ContainsAny(quoted, "\n\r\x1b\x7f") {
			t.Errorf("%q has control characters", quoted)
		}
		out, err := exec.CommandContext(t.Context(), bash, "-c", "printf %s "+quoted).Output()
		if err != nil || string(out) != word {
			t.Errorf("bash reads %s as %q, %v; want %q", quoted, out, err, word)
		}
	})
}
