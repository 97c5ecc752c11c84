package plaintext

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// textOf returns the text of the output of a program that was written in parts.
func textOf(t testing.TB, isScreen bool, parts ...string) string {
	t.Helper()
	var got bytes.Buffer
	w := &Writer{To: &got, IsScreen: isScreen}
	for _, part := range parts {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write returned %d, %v", n, err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return got.String()
}

// outputTexts are outputs of programs, and the text that they are.
var outputTexts = map[string]struct{ output, want string }{
	"nothing":               {"", ""},
	"text":                  {"a\n\n\tb  \n", "a\n\n\tb  \n"},
	"no newline":            {"a\nb", "a\nb"},
	"characters":            {"é€👍 日本", "é€👍 日本"},
	"terminal lines":        {"one\r\ntwo\r\n", "one\ntwo\n"},
	"progress":              {"10%\r50%\r100%\ndone\n", "100%\ndone\n"},
	"erased progress":       {"downloading\r\x1b[Kdone\n", "done\n"},
	"overwritten":           {"abcdef\rxy\n", "xycdef\n"},
	"backspace":             {"abc\b\bx\n", "axc\n"},
	"colours":               {"\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[m\n", "red x\n"},
	"title and clipboard":   {"\x1b]0;title\aa\x1b]52;c;c2VjcmV0\x1b\\b\n", "ab\n"},
	"link":                  {"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n"},
	"device control":        {"a\x1bP+q544e\x1b\\b\x1b_Ga=q;AAAA\x1b\\c\x1b^x\x1b\\\n", "abc\n"},
	"charset and keypad":    {"\x1b(B\x1b=a\x1b>\x1b#8b\n", "ab\n"},
	"8-bit controls":        {"\u009b31ma\u009d0;title\u009cb\u0085c\n", "ab\nc\n"},
	"bell and other":        {"a\a\x00\x05\x0e\x7fb\n", "ab\n"},
	"string without an end": {"a\x1b]0;hidden\nb\n", "a\nb\n"},
	"sequence without end":  {"a\x1b[31", "a"},
	"broken sequence":       {"a\x1b[3éb\x1b[3\nc\n", "aéb\nc\n"},
	"cancelled sequence":    {"a\x1b[3\x18b\n", "ab\n"},
	"invalid bytes":         {"a\xff\x9bb\xe2\x82", `a\xff\x9bb\xe2\x82`},
	"invisible":             {"a\u202eb\u200b\n", `a\u202eb\u200b` + "\n"},
	"space by movement":     {"a\x1b[2Cb\x1b[10Gc\n", "a  b     c\n"},
	"redrawn lines":         {"one\ntwo\n\x1b[2A\x1b[2Kuno\n\x1b[2Kdue\n", "uno\ndue\n"},
	"spinner":               {"| work\n\x1b[1A\x1b[2K/ work\n\x1b[1A\x1b[2K- work\ndone\n", "- work\ndone\n"},
	"erased below":          {"a\nb\nc\x1b[2A\r\x1b[Jx\n", "x\n"},
	"screens":               {"shell\r\n\x1b[?1049h\x1b[2J\x1b[Hfirst\x1b[3;2Hthird\x1b[?1049lback\r\n", "shell\nfirst\n\n third\nback\n"},
	"cleared screen":        {"old\n\x1b[H\x1b[2Jnew\n\x1b[1;1Hraw\n", "old\nraw\n"},
	"position":              {"kept\n\x1b[1;1Hdrawn\n", "kept\ndrawn\n"},
	"far away":              {"a\x1b[999999999Bb\x1b[99999999;999999999Hc\x1b[999999Ax\n", ""},
	"edited line":           {"abcdef\x1b[3D\x1b[2P\x1b[1@x\x1b[4G\x1b[1X\n", "abc f\n"},
	"edited screen":         {"a\nb\nc\n\x1b[2A\x1b[Lx\n\x1b[2Md\n", "a\nx\nd\n"},
	"saved position":        {"a\x1b7bc\x1b8x\x1b[s\nlow\x1b[uy\n", "axy\nlow"},
}

func TestTextOfOutput(t *testing.T) {
	t.Parallel()
	for name, c := range outputTexts {
		if got := textOf(t, false, c.output); got != c.want && name != "far away" {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := textOf(t, true, "\x1b[2J\x1b[Hab\ncd\r\nef\r\n"); got != "ab\n  cd\nef\n" {
		t.Errorf("a line feed of a terminal: %q", got)
	}
	if got := textOf(t, true, outputTexts["far away"].output); len(got) > 4*maxRows+4*maxColumns {
		t.Errorf("movements made %d bytes", len(got))
	}
}

// The text does not depend on how the output was split, also inside of characters and sequences.
func TestTextOfSplitOutput(t *testing.T) {
	t.Parallel()
	for name, c := range outputTexts {
		want := textOf(t, false, c.output)
		for i := range len(c.output) + 1 {
			for j := i; j <= len(c.output); j++ {
				if got := textOf(t, false, c.output[:i], c.output[i:j], c.output[j:]); got != want {
					t.Fatalf("%s, split at %d and %d: got %q, want %q", name, i, j, got, want)
				}
			}
		}
	}
}

// Output that is followed is written at once, each line once; a line that changes later is written again.
func TestTextIsWrittenByFlush(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	w := &Writer{To: &got}
	for _, step := range []struct{ output, want string }{
		{"work", "work"},
		{"", ""},
		{"ing\n", "ing\n"},
		{"next\nlast", "next\nlast"},
		{"\r\x1b[K", ""},
		{"10%", "\n10%"},
		{"\r20%", "\n20%"},
		{"\n", "\n"},
		{"\x1b[1A\r\x1b[K20%\n", ""},
		{"\n\nend\n", "\n\nend\n"},
	} {
		got.Reset()
		if _, err := w.Write([]byte(step.output)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil || got.String() != step.want {
			t.Errorf("%q: got %q, %v; want %q", step.output, got.String(), err, step.want)
		}
	}
}

// A long output, and a long line, are written while they come, and completely.
func TestTextOfLongOutput(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{
		"lines": strings.Repeat("line\n", 100*maxRows),
		"line":  strings.Repeat("x", 5*maxCells) + "\nend\n",
	} {
		var got bytes.Buffer
		w := &Writer{To: &got}
		if _, err := w.Write([]byte(output)); err != nil {
			t.Fatal(err)
		}
		if got.Len() < len(output)/2 {
			t.Errorf("%s: %d bytes of %d were written", name, got.Len(), len(output))
		}
		if err := w.End(); err != nil || got.String() != output {
			t.Errorf("%s: %d bytes of %d, %v", name, got.Len(), len(output), err)
		}
	}
}

// A few bytes cannot write a whole row of spaces, wherever the cursor was before.
func TestTextOfMovedCursorIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, repeated string }{
		"restored cursor": {strings.Repeat("x", maxCells) + "\x1b7", "\x1b8xy"},
		"next row":        {strings.Repeat("x", maxCells-1000), "\x1bDx"},
		"line feed":       {strings.Repeat("x", maxCells-1000), "\nx"},
		"erased line":     {strings.Repeat("x", maxCells-1000), "\x1b[2Kx\n"},
	} {
		const number = 100
		got := textOf(t, true, c.before, strings.Repeat(c.repeated, number))
		if most := len(c.before) + number*(maxColumns+number); len(got) > most {
			t.Errorf("%s: %d bytes, want at most %d", name, len(got), most)
		}
	}
}

// FuzzTextOfOutput checks that the text of an output cannot control a terminal, does not depend on how the output was split,
// and is the output itself if that is plain.
func FuzzTextOfOutput(f *testing.F) {
	for _, c := range outputTexts {
		f.Add(c.output, len(c.output)/2, true)
		f.Add(c.output, 1, false)
	}
	f.Fuzz(func(t *testing.T, output string, at int, isScreen bool) {
		at = min(max(at, 0), len(output))
		got := textOf(t, isScreen, output)
		isPlain := utf8.ValidString(output)
		for _, c := range output {
			isPlain = isPlain && (c == '\n' || c == '\t' || quote.IsPrintable(c))
		}
		if isPlain && !isScreen && got != output {
			t.Errorf("%q became %q", output, got)
		}
		for _, c := range got {
			if c != '\n' && c != '\t' && !quote.IsPrintable(c) {
				t.Fatalf("%q has %U", got, c)
			}
		}
		if split := textOf(t, isScreen, output[:at], output[at:]); split != got {
			t.Errorf("split at %d: %q became %q, want %q", at, output, split, got)
		}
	})
}
