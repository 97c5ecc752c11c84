package merge

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
		got, err := MarkerLines(strings.NewReader(text), "<>|")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %q, %v; want %q", text, got, err, want)
		}
	}
}
