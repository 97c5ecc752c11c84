package treediff_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonschema "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

var testColors = treediff.Colors{
	Meta: "\x1b[1m", Hunk: "\x1b[36m", Section: "\x1b[2m", Same: "\x1b[37m", Removed: "\x1b[31m", Added: "\x1b[32m",
	Emphasis: "\x1b[7m", EmphasisEnd: "\x1b[27m", Reset: "\x1b[m",
}

// testColorSequences matches the escape sequences of testColors. Random files may contain some of them too.
var testColorSequences = regexp.MustCompile("\x1b\\[(1|36|37|2|31|32|7|27)?m")

// Promise: git apply makes the new tree from the old one with our patch, for any two trees; and colours add only escape
// sequences to it.
func TestGitApplyMakesNewTree(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "..", "cmd", "git-agency", "schema", "diff.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []struct {
		name   string
		cases  int
		binary bool
	}{{"text", 500, false}, {"binary", 100, true}} {
		if testing.Short() {
			kind.cases /= 5
		}
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			var trees []tree
			for i := range kind.cases {
				r := rand.New(rand.NewPCG(uint64(i), 6))
				before := randomTree(r, kind.binary)
				trees = append(trees, before, before.changed(r, kind.binary))
			}
			l := newTestRepo(t)
			commits := l.commits(trees...)
			seen := map[string]int{}
			for i := range kind.cases {
				before, after := trees[2*i], trees[2*i+1]
				d := l.compare(merge.CompareRequest{From: commits[2*i], To: commits[2*i+1], Binary: kind.binary})
				for _, f := range d.Files() {
					seen[f.Status()[:1]]++
				}
				if d.IsEmpty() != maps.Equal(before, after) {
					t.Fatalf("case %d: empty is %v", i, d.IsEmpty())
				}
				text := patch(t, d, treediff.Style{})
				dir := filepath.Join(l.dir, fmt.Sprint(i))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				before.checkOut(t, dir)
				if !d.IsEmpty() {
					l.git(dir, d.Summary()+"\n"+text, "apply", "--whitespace=nowarn")
				}
				if got := readTree(t, dir); !maps.Equal(got, after) {
					t.Fatalf("case %d: from %q\nto %q\npatch\n%s\ngives %q", i, before, after, text, got)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				d.UpdateFiles((*treediff.File).MarkWords)
				checkSpans(t, d)
				colored := patch(t, d, treediff.Style{Colors: testColors})
				plain := testColorSequences.ReplaceAllString(text, "") // random files may have such sequences
				if stripped := testColorSequences.ReplaceAllString(colored, ""); stripped != plain {
					t.Fatalf("case %d: without colour\n%q\nplain\n%q", i, stripped, plain)
				}
				if shown := patch(t, d, treediff.Style{Colors: testColors, EscapeControls: true}); strings.ContainsAny(testColorSequences.ReplaceAllString(shown, ""), "\x1b\x07\x08") {
					t.Fatalf("case %d: unescaped control characters: %q", i, shown)
				}
				checkCounts(t, l, commits[2*i], commits[2*i+1], d)
				checkJSON(t, schema, d)
			}
			for _, status := range []string{"A", "D", "M", "R", "T"} {
				if seen[status] < kind.cases/20 {
					t.Errorf("only %d files with status %s", seen[status], status)
				}
			}
		})
	}
}

// checkJSON checks that the JSON form matches the schema and holds every byte of paths and lines.
func checkJSON(t *testing.T, schema *jsonschema.Schema, d treediff.Diff) {
	t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(document); err != nil {
		t.Fatalf("%v:\n%s", err, data)
	}
	type file struct {
		Path  string
		Bytes []byte `json:"path_base64"`
		Hunks []struct {
			Lines []struct {
				Text  string
				Bytes []byte `json:"base64"`
			}
		}
	}
	var read struct{ Added, Removed, Changed []file }
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	whole := func(text string, octets []byte) string {
		if octets != nil {
			return string(octets)
		}
		return text
	}
	for i, f := range slices.Concat(d.Added, d.Removed, d.Changed) {
		got := slices.Concat(read.Added, read.Removed, read.Changed)[i]
		if whole(got.Path, got.Bytes) != f.Path {
			t.Fatalf("path %q decodes as %+v", f.Path, got)
		}
		for j, h := range f.AllHunks() {
			for k, l := range h.Lines {
				if back := got.Hunks[j].Lines[k]; whole(back.Text, back.Bytes) != l.Text {
					t.Fatalf("line %q decodes as %+v", l.Text, back)
				}
			}
		}
	}
}

func checkSpans(t *testing.T, d treediff.Diff) {
	t.Helper()
	for _, f := range d.Files() {
		for _, h := range f.AllHunks() {
			for _, l := range h.Lines {
				if len(l.Spans) == 0 {
					continue
				}
				text := ""
				for _, s := range l.Spans {
					text += s.Text
				}
				if text != l.Text || l.Op == treediff.Same {
					t.Fatalf("%q has spans %+v", l.Text, l.Spans)
				}
			}
		}
	}
}

// checkCounts checks that comparisons with less detail report the same files and counts.
func checkCounts(t *testing.T, l *testRepo, from, to string, d treediff.Diff) {
	t.Helper()
	for _, detail := range []merge.Detail{merge.Counts, merge.Names} {
		brief := l.compare(merge.CompareRequest{From: from, To: to, Detail: detail})
		files, full := brief.Files(), d.Files()
		if len(files) != len(full) {
			t.Fatalf("%d files in brief, %d in full", len(files), len(full))
		}
		for i, f := range files {
			g := full[i]
			if f.Path != g.Path || f.OldPath != g.OldPath || f.OldID != g.OldID || f.NewID != g.NewID || f.Status() != g.Status() ||
				f.OldMode != g.OldMode || f.NewMode != g.NewMode {
				t.Fatalf("in brief %+v, in full %+v", f, g)
			}
			if detail == merge.Counts && g.RemovedBody == nil && (f.Insertions != g.Insertions || f.Deletions != g.Deletions || f.Binary != g.Binary) {
				t.Fatalf("in brief %+v, in full %+v", f, g)
			}
		}
	}
}
