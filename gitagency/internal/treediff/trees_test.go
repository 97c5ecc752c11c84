package treediff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// tree is the content of a directory, by path.
type tree map[string]entry

type entry struct{ mode, content string }

// fileNames are names of random files, many of them unusual.
var fileNames = []string{
	"a", "b", "c.go", "two words", " leading", "trailing ", "-dash", "tab\there", "new\nline", `quo"te`, `back\slash`,
	"ünïcode", "日本", "bad\xff\xfename", "esc\x1b[31m", "bidi\u202e", "@@ -1 +1 @@", "dir/one", "dir/two three", "dir/sub/deep",
	"dir/sub/d\téep", "a => b", "{x}", "x.txt\r", "diff --git a/x b/y", "other/one", "other/sub/deep", "nbsp\u00a0",
}

// textLines are lines of random files; some look like parts of a patch.
var textLines = []string{
	"", "one", "two", "three four", "}", "{", "\t\tindented", "func main() {", "diff --git a/a b/a", "--- a/a", "+++ b/a", "@@ -1 +1 @@",
	"@@ -1,2 +3,4 @@ x", `\ No newline at end of file`, "+added", "-removed", "Binary files a/a and b/a differ", "GIT binary patch",
	"carriage\r", "\r", "non \xff\xfe utf", "esc \x1b[2J", "ünïcode é", "trailing  ", "index 0000..1111", "rename from x", "\u2028sep",
}

func randomLines(r *rand.Rand) string {
	var b strings.Builder
	end := "\n"
	if r.IntN(6) == 0 {
		end = "\r\n"
	}
	for n := r.IntN(30); n > 0; n-- {
		b.WriteString(textLines[r.IntN(len(textLines))])
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, " %d", r.IntN(100))
		}
		b.WriteString(end)
	}
	text := b.String()
	if r.IntN(5) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}

func randomEntry(r *rand.Rand, binary bool) entry {
	switch k := r.IntN(10); {
	case k == 0:
		return entry{"120000", fileNames[r.IntN(len(fileNames))]}
	case k == 1:
		return entry{"100755", randomLines(r)}
	case k == 2:
		return entry{"100644", ""}
	case k < 5 && binary:
		data := make([]byte, 1+r.IntN(3000))
		for i := range data {
			data[i] = byte(r.IntN(256))
		}
		data[0] = 0
		return entry{"100644", string(data)}
	}
	return entry{"100644", randomLines(r)}
}

// add adds a file, unless it would be above or below another one.
func (t tree) add(path string, e entry) {
	for other := range t {
		if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
			return
		}
	}
	t[path] = e
}

func randomTree(r *rand.Rand, binary bool) tree {
	t := tree{}
	for range r.IntN(9) {
		t.add(fileNames[r.IntN(len(fileNames))], randomEntry(r, binary))
	}
	return t
}

// changed returns a copy of the tree with random edits, renames and mode changes.
func (t tree) changed(r *rand.Rand, binary bool) tree {
	after := maps.Clone(t)
	for _, path := range slices.Sorted(maps.Keys(t)) {
		e := after[path]
		switch r.IntN(9) {
		case 0:
			delete(after, path)
		case 1, 2: // renamed, perhaps over another file
			delete(after, path)
			if r.IntN(2) == 0 {
				e.content = editText(r, e)
			}
			to := fileNames[r.IntN(len(fileNames))]
			delete(after, to)
			after.add(to, e)
		case 3:
			if e.mode == "100644" {
				after[path] = entry{"100755", e.content}
			} else if e.mode == "100755" {
				after[path] = entry{"100644", e.content}
			}
		case 4:
			after[path] = randomEntry(r, binary)
		case 5, 6:
			after[path] = entry{e.mode, editText(r, e)}
		}
	}
	if paths := slices.Sorted(maps.Keys(after)); len(paths) > 1 && r.IntN(4) == 0 { // two files swap names
		a, b := paths[0], paths[r.IntN(len(paths)-1)+1]
		after[a], after[b] = after[b], after[a]
	}
	for range r.IntN(3) {
		after.add(fileNames[r.IntN(len(fileNames))], randomEntry(r, binary))
	}
	return after
}

func editText(r *rand.Rand, e entry) string {
	if e.mode == "120000" {
		return fileNames[r.IntN(len(fileNames))]
	}
	parts := strings.SplitAfter(e.content, "\n")
	for range 1 + r.IntN(3) {
		at := r.IntN(len(parts))
		switch r.IntN(4) {
		case 0:
			parts = slices.Delete(parts, at, at+1)
		case 1:
			parts = slices.Insert(parts, at, textLines[r.IntN(len(textLines))]+"\n")
		case 2:
			parts[at] = strings.Replace(parts[at], "o", "O0", 1)
		case 3:
			parts[at] = strings.TrimSuffix(parts[at], "\n")
		}
		if len(parts) == 0 {
			parts = []string{""}
		}
	}
	return strings.Join(parts, "")
}

// checkOut writes a tree to disk.
func (t tree) checkOut(tb testing.TB, dir string) {
	tb.Helper()
	for path, e := range t {
		full := dir + "/" + path
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			tb.Fatal(err)
		}
		var err error
		switch e.mode {
		case "120000":
			err = os.Symlink(e.content, full)
		case "100755":
			err = os.WriteFile(full, []byte(e.content), 0o755)
		default:
			err = os.WriteFile(full, []byte(e.content), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func readTree(tb testing.TB, dir string) tree {
	tb.Helper()
	t := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			t[name] = entry{"120000", to}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := "100644"
		if info.Mode()&0o100 != 0 {
			mode = "100755"
		}
		data, err := os.ReadFile(path)
		t[name] = entry{mode, string(data)}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// testRepo is a repository with trees, and a mirror to compare them.
type testRepo struct {
	tb     testing.TB
	dir    string
	repo   *git.Repo
	mirror *git.Mirror
	env    []string
}

func newTestRepo(tb testing.TB) *testRepo {
	tb.Helper()
	l := &testRepo{tb: tb, dir: tb.TempDir()}
	l.env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CEILING_DIRECTORIES="+l.dir, "LC_ALL=C")
	repo := filepath.Join(l.dir, "repo")
	l.git(l.dir, "", "init", "-q", "-b", "main", gittest.WithTemplate(tb), repo)
	var err error
	if l.repo, err = git.Open(tb.Context(), repo, l.env); err != nil {
		tb.Fatal(err)
	}
	if l.mirror, err = l.repo.NewMirror(strings.Repeat("0", 40)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.mirror.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func (l *testRepo) git(dir, stdin string, args ...string) string {
	l.tb.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, l.env, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			l.tb.Fatal(err)
		}
		l.tb.Fatalf("git %q ended with %v:\n%s\n%s", args, err, errs.String(), stdin)
	}
	return out.String()
}

// commits imports trees with fast-import and returns their commits.
func (l *testRepo) commits(trees ...tree) []string {
	l.tb.Helper()
	var b strings.Builder
	for i, t := range trees {
		fmt.Fprintf(&b, "commit refs/trees/%d\nmark :%d\ncommitter T <t@localhost> 1000000000 +0000\ndata 0\ndeleteall\n", i, i+1)
		for path, e := range t {
			fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", e.mode, fastImportPath(path), len(e.content), e.content)
		}
	}
	marks := filepath.Join(l.dir, "marks")
	l.git(l.repo.CommonDir, b.String(), "fast-import", "--quiet", "--force", "--export-marks="+marks)
	data, err := os.ReadFile(marks)
	if err != nil {
		l.tb.Fatal(err)
	}
	oids := make([]string, len(trees))
	for line := range strings.Lines(string(data)) {
		var mark int
		var oid string
		if _, err := fmt.Sscanf(line, ":%d %s", &mark, &oid); err != nil {
			l.tb.Fatal(err)
		}
		oids[mark-1] = oid
	}
	return oids
}

func fastImportPath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (l *testRepo) compare(c merge.CompareRequest) treediff.Diff {
	l.tb.Helper()
	text, err := merge.Compare(l.tb.Context(), l.mirror, c)
	if err != nil {
		l.tb.Fatal(err)
	}
	parse := treediff.ParsePatch
	if c.Detail != merge.Patches {
		parse = treediff.ParseCounts
	}
	d, err := parse(text)
	if err != nil {
		l.tb.Fatalf("%v:\n%s", err, text)
	}
	return d
}

func patch(tb testing.TB, d treediff.Diff, style treediff.Style) string {
	tb.Helper()
	var b strings.Builder
	if err := d.WritePatch(&b, style); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}
