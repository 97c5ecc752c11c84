package resolve

import (
	"strings"
	"testing"
)

// No text can end its quotation.
func TestQuoteText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one":                          "> one\n",
		" one\n\n> two\r\nthree\n":     "> one\n> \n> > two\n> three\n",
		"a\rb\x1b[2J\u2028c\vd\u0085e": "> a b [2J c d e\n",
		"bad \xff":                     "> bad \ufffd\n",
		strings.Repeat("x", 50):        "> " + strings.Repeat("x", 40) + "…\n",
	} {
		if got := quoteText(text, 40); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
