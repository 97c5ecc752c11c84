package complete

import "testing"

func TestCandidateLineEscapesControlCharacters(t *testing.T) {
	t.Parallel()
	tests := []struct {
		candidate candidate
		want      string
		ok        bool
	}{
		{candidate{"a b", ""}, "a b\n", true},
		{candidate{"a:b", "c"}, "a:b\tc\n", true},
		{candidate{"a", "two\nlines\tand a tab"}, "a\ttwo lines and a tab\n", true},
		{candidate{"a", "\x1b[31mred\u202e"}, "a\t" + `\x1b[31mred\u202e` + "\n", true},
		{candidate{"", "files"}, "\tfiles\n", true},
		{candidate{"two\nlines", ""}, "", false},
		{candidate{"a\ttab", ""}, "", false},
		{candidate{"\x1b[31m", ""}, "", false},
		{candidate{"\u202e", ""}, "", false},
		{candidate{"\xff", ""}, "", false},
	}
	for _, tt := range tests {
		if got, ok := tt.candidate.line(); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %q, %v", tt.candidate, got, ok)
		}
	}
}
