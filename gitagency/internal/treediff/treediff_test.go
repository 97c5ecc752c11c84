package treediff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// applyHunks applies hunks to the old text and fails if they do not match it.
func applyHunks(t *testing.T, before []byte, hunks []treediff.Hunk) string {
	t.Helper()
	old := strings.SplitAfter(string(before), "\n")
	var out strings.Builder
	at := 0
	for _, h := range hunks {
		start := h.OldStart - 1
		if h.OldLines == 0 {
			start++
		}
		for ; at < start; at++ {
			out.WriteString(old[at])
		}
		for _, l := range h.Lines {
			text := l.Text
			if !l.NoNewline {
				text += "\n"
			}
			if l.Op != treediff.Added {
				if old[at] != text {
					t.Fatalf("line %d is %q, not %q", at+1, old[at], text)
				}
				at++
			}
			if l.Op != treediff.Removed {
				out.WriteString(text)
			}
		}
	}
	for ; at < len(old); at++ {
		out.WriteString(old[at])
	}
	return out.String()
}

// TestCompareTextApplies keeps the promise that the hunks turn the old text into the new one, by our reading and by
// git apply.
func TestCompareTextApplies(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t)
	for i := range 500 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		before := randomLines(r)
		after := editText(r, entry{"100644", before})
		if r.IntN(10) == 0 {
			after = randomLines(r)
		}
		f := treediff.CompareText([]byte(before), []byte(after))
		if got := applyHunks(t, []byte(before), f.Hunks); got != after {
			t.Fatalf("case %d: %q\nbecame %q\nwant %q", i, before, got, after)
		}
		if (len(f.Hunks) == 0) != (before == after) {
			t.Fatalf("case %d: %d hunks", i, len(f.Hunks))
		}
		if i%10 != 0 || before == after {
			continue
		}
		dir := t.TempDir()
		tree{"x": {"100644", before}}.checkOut(t, dir)
		f.Path, f.OldMode, f.NewMode = "x", "100644", "100644"
		text := patch(t, treediff.Diff{Changed: []treediff.File{f}}, treediff.Style{})
		l.git(dir, text, "apply", "--whitespace=nowarn")
		if got := readTree(t, dir)["x"].content; got != after {
			t.Fatalf("case %d: git apply of\n%s\ngives %q, want %q", i, text, got, after)
		}
	}
}

// TestCompareTextLongTexts keeps the promise that common lines are found in long texts with many changes, for which a full
// search would take hours. The benchmarks watch the time; this test bounds the number of reported changes.
func TestCompareTextLongTexts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	const n = 60_000
	text := func(line func(i int) string) []byte {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i) + "\n")
		}
		return []byte(b.String())
	}
	few := []string{"{", "}", "\treturn err", "", "\tif err != nil {"}
	third := func(old, new func(int) string) (a, b []byte) {
		return text(old), text(func(i int) string {
			if r.IntN(10) < 3 {
				return new(i)
			}
			return old(i)
		})
	}
	distinct := func(i int) string { return fmt.Sprintf("line %d of many", i) }
	fewOf := func(i int) string { return few[(i*i/7+i)%len(few)] }
	anyFew := func(int) string { return few[r.IntN(len(few))] }
	for _, c := range []struct {
		name     string
		old, new func(int) string
		most     int // maximal number of reported insertions and deletions
	}{
		{"distinct lines", distinct, func(i int) string { return fmt.Sprintf("other %d %d", i, r.Int()) }, 2 * n * 35 / 100},
		{"few different lines", fewOf, anyFew, 2 * n * 60 / 100},
		{"few lines, changed to others", fewOf, func(i int) string { return fmt.Sprint("new ", r.IntN(3)) }, 2 * n * 60 / 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := third(c.old, c.new)
			f := treediff.CompareText(a, b)
			if got := applyHunks(t, a, f.Hunks); got != string(b) {
				t.Fatal("the hunks do not give the new text")
			}
			if f.Insertions+f.Deletions > c.most {
				t.Errorf("%d insertions and %d deletions", f.Insertions, f.Deletions)
			}
			if again := treediff.CompareText(a, b); !reflect.DeepEqual(f, again) {
				t.Error("the second result differs")
			}
		})
	}
	moved := append(text(distinct), []byte("first\n")...)
	f := treediff.CompareText(moved, append([]byte("first\n"), text(distinct)...))
	if f.Insertions != 1 || f.Deletions != 1 {
		t.Errorf("a line that moved: %d insertions, %d deletions", f.Insertions, f.Deletions)
	}
}

func TestCompareTextBinary(t *testing.T) {
	t.Parallel()
	f := treediff.CompareText([]byte("a\x00b"), []byte("longer"))
	if !f.IsBinary() || f.OldSize != 3 || f.NewSize != 6 || len(f.Hunks) != 0 {
		t.Errorf("got %+v", f)
	}
}

// TestCompareTextMarksWords keeps the promise that only changed words are marked, and only in pairs of lines that have
// enough in common.
func TestCompareTextMarksWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, after, want string }{
		{"a word", "func old(a int) error {\n", "func new(a int) error {\n", "-func [old](a int) error {|+func [new](a int) error {"},
		{"an insertion", "call(a, b)\n", "call(a, b, c)\n", "-call(a, b)|+call(a, b[, c])"},
		{"nothing in common", "completely\n", "different\n", "-completely|+different"},
		{"little in common", "alpha beta gamma delta x\n", "one two three four five x\n", "-alpha beta gamma delta x|+one two three four five x"},
		{"two words in a row", "keep old words here stay\n", "keep new things here stay\n", "-keep [old words] here stay|+keep [new things] here stay"},
		{"blanks", "a := 1\n", "a  := 1\n", "-a[ ]:= 1|+a[  ]:= 1"},
		{"not UTF-8", "x \xff\xfe tail of it\n", "x \xff\xfd tail of it\n", "-x \xff[\xfe] tail of it|+x \xff[\xfd] tail of it"},
		{"letters of every script", "die schöne Größe hier\n", "die schöne Güte hier\n", "-die schöne [Größe] hier|+die schöne [Güte] hier"},
		{"a line more", "first\nlet value = one(here)\n", "let value = two(here)\n", "-first|-let value = [one](here)|+let value = [two](here)"},
		{"a line more, other side", "let value = one(here)\n", "fresh\nlet value = two(here)\n", "-let value = [one](here)|+fresh|+let value = [two](here)"},
		{"newline at the end", "same words", "same words\n", "-same words|+same words"},
	} {
		f := treediff.CompareText([]byte(c.before), []byte(c.after))
		var got []string
		for _, h := range f.Hunks {
			for _, l := range h.Lines {
				line := string(rune(l.Op))
				for _, s := range l.Spans {
					if s.Changed {
						line += "[" + s.Text + "]"
					} else {
						line += s.Text
					}
				}
				if l.Spans == nil {
					line += l.Text
				}
				got = append(got, line)
			}
		}
		if joined := strings.Join(got, "|"); joined != c.want {
			t.Errorf("%s: got %q, want %q", c.name, joined, c.want)
		}
	}
}

// TestCompareTextHugeLines keeps the promise that lines of any size and number are compared in bounded time.
func TestCompareTextHugeLines(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	long := func(n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, "%d,", r.IntN(1000))
		}
		return b.String()
	}
	var a, b strings.Builder
	for range 400 {
		a.WriteString(long(1500) + "\n")
		b.WriteString(long(1500) + "\n")
	}
	a.WriteString("same " + long(1<<20) + " end\n")
	b.WriteString("same " + long(1<<20) + " end\n")
	f := treediff.CompareText([]byte(a.String()), []byte(b.String()))
	if got := applyHunks(t, []byte(a.String()), f.Hunks); got != b.String() {
		t.Error("the hunks do not give the new text")
	}
}

func TestJSONEncodesInvalidUTF8(t *testing.T) {
	t.Parallel()
	f := treediff.CompareText([]byte("a \xff word of it\n"), []byte("a \xfe word of it"))
	f.Path, f.OldMode, f.NewMode = "p\xff", "100644", "100644"
	data, err := json.Marshal(treediff.Diff{Changed: []treediff.File{f}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Added, Removed []any
		Changed        []struct {
			Path       string
			PathBase64 []byte `json:"path_base64"`
			Hunks      []struct {
				Lines []struct {
					Op, Text  string
					Base64    []byte
					NoNewline bool `json:"no_newline"`
					Spans     []struct {
						Text    string
						Base64  []byte
						Changed bool
					}
				}
			}
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Added == nil || got.Removed == nil {
		t.Errorf("no empty lists in %s", data)
	}
	c := got.Changed[0]
	l := c.Hunks[0].Lines[1]
	if string(c.PathBase64) != "p\xff" || string(l.Base64) != "a \xfe word of it" || !l.NoNewline || string(l.Spans[1].Base64) != "\xfe" || !l.Spans[1].Changed {
		t.Errorf("got %s", data)
	}
}

func TestWritePatchEscapesControls(t *testing.T) {
	t.Parallel()
	f := treediff.CompareText([]byte("old\r\nsame\r\n"), []byte("esc \x1b[2J\x9b31m \u009b \u202e \x07 tab\t end\r\nsame\r\n"))
	f.Path, f.OldMode, f.NewMode = "p", "100644", "100644"
	got := patch(t, treediff.Diff{Changed: []treediff.File{f}}, treediff.Style{EscapeControls: true})
	want := "-old^M\n+esc ^[[2J<9B>31m <U+009B> <U+202E> ^G tab\t end^M\n same\r\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}

// seedPatch is the output of git diff --raw --patch, as seed of the fuzzers.
const seedPatch = ":100644 100644 1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 M\ta\n" +
	":100644 100644 1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 R095\t\"b\\t\\303\\244\"\tc d\n" +
	":100644 120000 1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 T\te\n" +
	"\ndiff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1 @@ section\n-x\n y\n\\ No newline at end of file\n" +
	"diff --git \"a/b\\t\" b/c d\nsimilarity index 95%\nBinary files a/b and b/c differ\n" +
	"diff --git a/e b/e\ndeleted file mode 100644\n@@ -1 +0,0 @@\n-x\ndiff --git a/e b/e\nnew file mode 120000\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file\n"

// FuzzParsePatch checks that any text is parsed without panic, that counts match the lines, and that the escaped patch has
// no control characters.
func FuzzParsePatch(f *testing.F) {
	f.Add(seedPatch)
	f.Add("")
	f.Add(":")
	f.Add(strings.ReplaceAll(seedPatch, "Binary files a/b and b/c differ\n", "GIT binary patch\nliteral 1\nIcmZPo\n\nliteral 0\nHcmV?d00001\n\n"))
	f.Fuzz(func(t *testing.T, text string) {
		d, err := treediff.ParsePatch(text)
		if err != nil {
			return
		}
		d.UpdateFiles((*treediff.File).MarkWords)
		checkSpans(t, d)
		for _, file := range d.Files() {
			added, removed := 0, 0
			for _, h := range file.AllHunks() {
				old, new := 0, 0
				for _, l := range h.Lines {
					switch l.Op {
					case treediff.Added:
						added, new = added+1, new+1
					case treediff.Removed:
						removed, old = removed+1, old+1
					default:
						old, new = old+1, new+1
					}
				}
				if old != h.OldLines || new != h.NewLines {
					t.Fatalf("%+v has %d and %d lines", h, old, new)
				}
			}
			if added != file.Insertions || removed != file.Deletions {
				t.Fatalf("%+v", file)
			}
		}
		shown := patch(t, d, treediff.Style{EscapeControls: true})
		if strings.Contains(shown, "\x1b") && !strings.Contains(text, "GIT binary patch") || !utf8.ValidString(shown) && !strings.Contains(text, "GIT binary patch") {
			t.Fatalf("%q", shown)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseCounts(f *testing.F) {
	f.Add(":100644 100644 1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 R095\x00a\x00b\x001\t2\t\x00a\x00b\x00")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := treediff.ParseCounts(text)
		if err != nil {
			return
		}
		var b strings.Builder
		if err := d.WriteStat(&b, treediff.Style{Width: 40}); err != nil {
			t.Fatal(err)
		}
		if err := d.WriteNameStatus(&b); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzCompareLines checks that the hunks of any two texts give the new one.
func FuzzCompareLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nd"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		hunks := treediff.CompareLines(before, after)
		if got := applyHunks(t, before, hunks); got != string(after) {
			t.Fatalf("got %q", got)
		}
		file := treediff.CompareText(before, after)
		checkSpans(t, treediff.Diff{Changed: []treediff.File{file}})
	})
}
