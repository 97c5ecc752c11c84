package term

import (
	"regexp"
	"strings"
	"testing"
)

func TestGridAlignsByDisplayWidth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit int
		rows  []string // cells are separated by |
		want  []string
	}{
		{"plain", 0, []string{"A|B|C", "one|2|three"}, []string{"A    B  C", "one  2  three"}},
		{"wide characters", 0, []string{"日本語|x", "ab|y"}, []string{"日本語  x", "ab      y"}},
		{"combining marks have no width", 0, []string{"e\u0301e\u0301|x", "ab|y"}, []string{"e\u0301e\u0301  x", "ab  y"}},
		{"emoji", 0, []string{"👍🏽|x", "🇩🇪|y", "ab|z"}, []string{"👍🏽  x", "🇩🇪  y", "ab  z"}},
		{"invisible characters are escaped", 0, []string{"a\u200bb|x"}, []string{`a\u200bb  x`}},
		{"control characters are escaped", 0, []string{"a\x1b[31mb\a|x\ny\tz"}, []string{`a\x1b[31mb\a  x\ny\tz`}},
		{"invalid UTF-8 is escaped", 0, []string{"a\x9b1mb|x"}, []string{`a\x9b1mb  x`}},
		{"empty cells", 0, []string{"A|B|C", "|b|"}, []string{"A  B  C", "-  b  -"}},
		{"one column", 0, []string{"A", "long"}, []string{"A", "long"}},
		{"the last column is not padded", 0, []string{"A|long", "a|b"}, []string{"A  long", "a  b"}},
		{"rows of different lengths", 0, []string{"A|B", "a", "a|b|c"}, []string{"A  B", "a", "a  b  c"}},

		{"as wide as the terminal", 7, []string{"A|PATH", "a|/tmp"}, []string{"A  PATH", "a  /tmp"}},
		{"wider than the terminal", 8, []string{"A|PATH", "a|/tmp/x"}, []string{"A  PATH", "a  /tmp…"}},
		{"cut between wide characters", 9, []string{"A|PATH", "a|日本語日本"}, []string{"A  PATH", "a  日本…"}},
		{"grapheme clusters are not cut", 8, []string{"A|PATH", "a|abcde\u0301fg"}, []string{"A  PATH", "a  abcd…"}},
		{"no room for the header", 6, []string{"A|PATH", "a|/tmp/x"}, []string{"A  PATH", "a  /tmp/x"}},
		{"no room at all", 1, []string{"A|PATH", "a|/tmp/x"}, []string{"A  PATH", "a  /tmp/x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := Grid{EmptyCell: "-", MaxWidth: tt.limit}
			for _, row := range tt.rows {
				g.Rows = append(g.Rows, strings.Split(row, "|"))
			}
			var b strings.Builder
			if err := g.Write(&b); err != nil {
				t.Fatal(err)
			}
			if want := strings.Join(tt.want, "\n") + "\n"; b.String() != want {
				t.Errorf("got\n%swant\n%s", b.String(), want)
			}
		})
	}
}

// Optional columns are left out, in their order, until lines fit; nothing is cut.
func TestGridLeavesOutOptionalColumns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit int
		want  string
	}{
		{0, "ID  NAME  STATE  AGE\n1   long  idle   3m\n"},
		{20, "ID  NAME  STATE  AGE\n1   long  idle   3m\n"},
		{19, "ID  NAME  STATE\n1   long  idle\n"},
		{15, "ID  NAME  STATE\n1   long  idle\n"},
		{14, "ID  STATE\n1   idle\n"},
		{3, "ID  STATE\n1   idle\n"},
	} {
		g := Grid{
			Rows: [][]string{{"ID", "NAME", "STATE", "AGE"}, {"1", "long", "idle", "3m"}}, MaxWidth: tt.limit, Optional: []int{3, 1},
			Paint: func(row, column int, shown string) string {
				if row == 0 && shown != []string{"ID", "NAME", "STATE", "AGE"}[column] {
					t.Errorf("column %d is painted as %s", column, shown)
				}
				return shown
			},
		}
		var b strings.Builder
		if err := g.Write(&b); err != nil || b.String() != tt.want {
			t.Errorf("%d columns wide: got %v and\n%swant\n%s", tt.limit, err, b.String(), tt.want)
		}
	}
}

// The last column is wrapped between words: below itself, or, where that is too narrow, on lines of its own.
func TestGridWrapsLastColumn(t *testing.T) {
	t.Parallel()
	const text = "a text of ten words, one of them averyverylongwordthatfitsnowhereatall"
	for _, tt := range []struct {
		limit int
		want  string
	}{
		{0, "KEY  MEANING\nk    " + text + "\nl    short\n"},
		{5 + len(text), "KEY  MEANING\nk    " + text + "\nl    short\n"},
		{4 + len(text), "KEY  MEANING\nk    a text of ten words, one of them\n     averyverylongwordthatfitsnowhereatall\nl    short\n"},
		{35, "KEY  MEANING\nk    a text of ten words, one of\n     them\n     averyverylongwordthatfitsnowhereatall\nl    short\n"},
		{34, "KEY\n    MEANING\nk\n    a text of ten words, one of\n    them\n    averyverylongwordthatfitsnowhereatall\nl\n    short\n"},
	} {
		g := Grid{Rows: [][]string{{"KEY", "MEANING"}, {"k", text}, {"l", "short"}}, MaxWidth: tt.limit, Wrap: true}
		var b strings.Builder
		if err := g.Write(&b); err != nil || b.String() != tt.want {
			t.Errorf("%d columns wide: got %v and\n%swant\n%s", tt.limit, err, b.String(), tt.want)
		}
	}
	var b strings.Builder // the first column and the gap are as wide as the indent of a column on lines of its own
	g := Grid{Rows: [][]string{{"kk", text}}, MaxWidth: 37, Wrap: true}
	if err, want := g.Write(&b), "kk  a text of ten words, one of them\n    averyverylongwordthatfitsnowhereatall\n"; err != nil || b.String() != want {
		t.Errorf("got %v and\n%swant\n%s", err, b.String(), want)
	}
}

// A column to shorten is cut before optional columns are left out, and no further than needed.
func TestGridShortensColumns(t *testing.T) {
	t.Parallel()
	const name = "a-name-of-thirty-characters-30"
	for _, tt := range []struct {
		limit int
		want  string
	}{
		{0, "ID  NAME                            AGE\n1   " + name + "  3m\n"},
		{39, "ID  NAME                            AGE\n1   " + name + "  3m\n"},
		{38, "ID  NAME                           AGE\n1   a-name-of-thirty-characters-…  3m\n"},
		{29, "ID  NAME                  AGE\n1   a-name-of-thirty-ch…  3m\n"},
		{28, "ID  NAME\n1   a-name-of-thirty-ch…\n"},
		{3, "ID  NAME\n1   a-name-of-thirty-ch…\n"},
	} {
		g := Grid{Rows: [][]string{{"ID", "NAME", "AGE"}, {"1", name, "3m"}}, MaxWidth: tt.limit, Shortened: []int{1}, Optional: []int{2}}
		var b strings.Builder
		if err := g.Write(&b); err != nil || b.String() != tt.want {
			t.Errorf("%d columns wide: got %v and\n%swant\n%s", tt.limit, err, b.String(), tt.want)
		}
	}
}

func TestGridColorDoesNotAffectWidth(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"ID", "NAME", "PATH"}, {"日本", "x", "/a/long/path"}, {"b", "", "/b"}}
	var plain, painted strings.Builder
	if err := (Grid{Rows: rows, EmptyCell: "-", MaxWidth: 16}).Write(&plain); err != nil {
		t.Fatal(err)
	}
	l := Style{Color: true, Links: true}
	paint := func(row, column int, shown string) string { return l.Paint(rows[0][column], rows[row][column], shown) }
	if err := (Grid{Rows: rows, EmptyCell: "-", MaxWidth: 16, Paint: paint}).Write(&painted); err != nil {
		t.Fatal(err)
	}
	if got := escapeSequences.ReplaceAllString(painted.String(), ""); got != plain.String() {
		t.Errorf("got\n%swant\n%s", got, plain.String())
	}
	if !strings.Contains(painted.String(), "\x1b[2m日本\x1b[m  \x1b[1mx\x1b[m") || !strings.Contains(painted.String(), "file:///a/long/path\x1b\\/a/…") {
		t.Errorf("got %q", painted.String())
	}
}

// escapeSequences matches the color and hyperlink sequences that git-agency prints.
var escapeSequences = regexp.MustCompile("\x1b\\[[0-9;]*m|\x1b\\]8;;[^\x1b]*\x1b\\\\")
