package ignore

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data string
		want []rule
	}{
		{"", nil},
		{"\n\n", nil},
		{"# comment\n", nil},
		{"/\n!\n!/\n//\n   \n\r\n\x00\n \x00a\n", nil}, // these match nothing
		{"a", []rule{{pattern: "a", literal: 1, basename: true}}},
		{"a\nb\n", []rule{{pattern: "a", literal: 1, basename: true}, {pattern: "b", literal: 1, basename: true}}},
		{"\xef\xbb\xbfa\n\xef\xbb\xbfb", []rule{{pattern: "a", literal: 1, basename: true}, {pattern: "\xef\xbb\xbfb", literal: 4, basename: true}}},
		{"\xef\xbb\xbf# comment", nil},
		{"a\r\nb\r", []rule{{pattern: "a", literal: 1, basename: true}, {pattern: "b", literal: 1, basename: true}}},
		{"a\r\r\n", []rule{{pattern: "a\r", literal: 2, basename: true}}},
		{"a \r\n", []rule{{pattern: "a", literal: 1, basename: true}}},
		{"a\rb", []rule{{pattern: "a\rb", literal: 3, basename: true}}},
		{"a   ", []rule{{pattern: "a", literal: 1, basename: true}}},
		{" a", []rule{{pattern: " a", literal: 2, basename: true}}},
		{"a\t ", []rule{{pattern: "a\t", literal: 2, basename: true}}},
		{`a\   `, []rule{{pattern: `a\ `, literal: 1, basename: true}}},
		{`a\\   `, []rule{{pattern: `a\\`, literal: 1, basename: true}}},
		{`a \ `, []rule{{pattern: `a \ `, literal: 2, basename: true}}},
		{`a  \`, []rule{{pattern: `a  \`, literal: 3, basename: true}}},
		{"a/ ", []rule{{pattern: "a", literal: 1, dirOnly: true, basename: true}}},
		{"a \x00b", []rule{{pattern: "a", literal: 1, basename: true}}},
		{"!a", []rule{{pattern: "a", literal: 1, negated: true, basename: true}}},
		{"!!a", []rule{{pattern: "!a", literal: 2, negated: true, basename: true}}},
		{"!#a", []rule{{pattern: "#a", literal: 2, negated: true, basename: true}}},
		{`\!a`, []rule{{pattern: `\!a`, basename: true}}},
		{`\#a`, []rule{{pattern: `\#a`, basename: true}}},
		{" #a", []rule{{pattern: " #a", literal: 3, basename: true}}},
		{"a/", []rule{{pattern: "a", literal: 1, dirOnly: true, basename: true}}},
		{"a//", []rule{{pattern: "a/", literal: 2, dirOnly: true}}},
		{"/a", []rule{{pattern: "a", literal: 1}}},
		{"//a", []rule{{pattern: "/a", literal: 2}}},
		{"!/a/", []rule{{pattern: "a", literal: 1, negated: true, dirOnly: true}}},
		{"a/b", []rule{{pattern: "a/b", literal: 3}}},
		{"*", []rule{{pattern: "*", basename: true, suffix: true}}},
		{"*.o/", []rule{{pattern: "*.o", dirOnly: true, basename: true, suffix: true}}},
		{"*.[oa]", []rule{{pattern: "*.[oa]", basename: true}}},
		{"/*.o", []rule{{pattern: "*.o"}}},
		{"ab?c", []rule{{pattern: "ab?c", literal: 2, basename: true}}},
	} {
		l := Parse([]byte(c.data), "dir/")
		if l.base != "dir/" || !slices.Equal(l.rules, c.want) {
			t.Errorf("%q: base %q, rules %+v, want %+v", c.data, l.base, l.rules, c.want)
		}
	}
}

func TestParseKeepsNoReferenceToData(t *testing.T) {
	t.Parallel()
	data := []byte("abc\n")
	l := Parse(data, "")
	copy(data, "xyz\n")
	if l.rules[0].pattern != "abc" {
		t.Errorf("the rule changed to %q", l.rules[0].pattern)
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte(strings.Repeat(typicalRules, 10))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Parse(data, "")
	}
}
