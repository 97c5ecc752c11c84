package resolve

import (
	"slices"
	"strings"
	"testing"
)

func TestMarkerLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": nil,
		"a\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main": {"<<<<<<< HEAD", ">>>>>>> main"},
		"||||||| 1234\n":                             {"||||||| 1234"},
		">>>>>>>>>>>> main\r\n":                      {">>>>>>>>>>>> main"}, // conflict-marker-size=12
		"Title\n=======\n":                           nil,
		" <<<<<<< HEAD\n<<<<<< HEAD\n":               nil,
		"<<<<<<<x\n<<<<<<>> x\n":                     nil,
		strings.Repeat("x", 4096) + "<<<<<<< HEAD\n": nil, // the second part of a long line
	} {
		got, err := markerLines(strings.NewReader(text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %q, %v; want %q", text, got, err, want)
		}
	}
}

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
