package quote

import (
	"strings"
	"testing"
)

func TestShortenKeepsValidUTF8(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aöb", 2, "a…"},
		{"\xff\xfe", 10, "\uFFFD"},
	} {
		if got := Shorten(c.text, c.most); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "one\n": "one", "one\n\n two\t2 \nthree": "one; two 2; three", "\x1b[31mred\x1b[0m\r\n": "[31mred[0m", "a\xffb": "a\uFFFDb", "1234567890123": "1234567890…",
	} {
		if got := OneLine(text, 10+len("; two 2; three")*strings.Count(text, "two")); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
