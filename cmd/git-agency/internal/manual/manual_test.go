package manual

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRender(t *testing.T) {
	t.Parallel()
	source := "% TITLE 1\n\n## NAME\n\nthe-name - what **it** is\n\n### git agency do\n\n`git agency do <x>`\n\n" +
		"Does a lot of *things* that\ntake many words, as `git status` does.\n\n`-n`, `--no-<x>`\n: Do not do\n  it.\n\n- one item that is long\n- two\n\n" +
		"```\n$ do   it \\\n\n    `more`\n```\n"
	plain := `NAME
    the-name - what it is

  git agency do
    git agency do <x>

    Does a lot of things that take many
    words, as 'git status' does.

    -n, --no-<x>
        Do not do it.

    - one item that is long

    - two

        $ do   it \

            ` + "`more`" + `
`
	if got := Render(Parse(source), 40, false); got != plain {
		t.Errorf("got\n%s\nwant\n%s", got, plain)
	}
	narrow := `git agency do
    git agency do
    <x>

    Does a lot of
    things that
    take many
    words, as
    'git status'
    does.

    -n, --no-<x>
        Do not do
        it.

    - one item
      that is
      long

    - two

        $ do   it \

            ` + "`more`" + `
`
	if got := Render(Section(Parse(source), "git agency do"), 17, false); got != narrow {
		t.Errorf("got\n%s\nwant\n%s", got, narrow)
	}
	styled := Render(Parse("`a b` **c** *d* e\n"), 40, true)
	if want := "    \x1b[1ma\x1b[0m \x1b[1mb\x1b[0m \x1b[1mc\x1b[0m \x1b[4md\x1b[0m e\n"; styled != want {
		t.Errorf("got %q, want %q", styled, want)
	}
}

func FuzzRenderWidth(f *testing.F) {
	source, err := os.ReadFile("../../manual/git-agency.1.md")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(source[:2000]), 60)
	f.Add("a `b\nc* d** e", 10)
	f.Add("x\n: y\n\n- z\n\n```\ncode", 1)
	f.Add("é\xff ü\n# \n##\n ### a\n:\n: \n", 40)
	f.Fuzz(func(t *testing.T, source string, width int) {
		blocks := Parse(source)
		blocks = slices.DeleteFunc(blocks, func(b Block) bool { return b.Kind == Code })
		text := Render(blocks, width, false)
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if words := strings.Fields(line); utf8.RuneCountInString(line) > width && len(words) > 1 && (words[0] != "-" || len(words) > 2) {
				t.Errorf("%q is wider than %d", line, width)
			}
		}
		styled := escapeSequences.ReplaceAllString(Render(blocks, width, true), "")
		strip := strings.NewReplacer("'", "").Replace
		if a, b := strings.Fields(strip(text)), strings.Fields(strip(styled)); !strings.Contains(source, "\x1b") && !slices.Equal(a, b) {
			t.Errorf("plain and styled text differ in words:\n%q\n%q", a, b)
		}
	})
}

// escapeSequences matches the sequences for bold and underlined text.
var escapeSequences = regexp.MustCompile("\x1b\\[[0-9;]*m")
