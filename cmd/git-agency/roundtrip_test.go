package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// TestOddPathsRoundTripInEveryFormat checks that scripts read back odd paths and names unchanged from every output format.
func TestOddPathsRoundTripInEveryFormat(t *testing.T) {
	t.Parallel()
	for _, odd := range thin([]string{
		"new\nline\n\nand another",
		`"quoted"`,
		"tab\tand \\ backslash\\n",
		"é 日本語 👨‍👩‍👧 e\u0301 \u200b\u202e",
		"\x01\x1b[31m\x7f\u0085 trailing ",
		"\u009b31m \u2066\u2028\u3164\U000e0041",
	}) {
		t.Run(strconv.Quote(odd), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), odd)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l := newLabIn(t, dir)
			adopted := l.agency("worktree", "adopt", "--name", "adopted")
			l.agency("worktree", "create", "made")
			const label = `"odd" \ é 👍 name`
			id := l.agency("start", "made", "--name", label)
			records := onlyEntry(t, filepath.Join(l.data, "repos"))
			sandbox := filepath.Join(records, "sandboxes", id, "tree")

			for form, worktrees := range map[string][]map[string]string{
				"--json":         parseJSONStrings(t, l.agency("worktree", "ls", "--json")),
				"--porcelain":    parsePorcelain(t, l.agency("worktree", "ls", "--porcelain")+"\n"),
				"--porcelain -z": parsePorcelainZ(t, l.agency("worktree", "ls", "--porcelain", "-z")),
			} {
				paths := map[string]string{}
				for _, w := range worktrees {
					paths[w["name"]] = w["tree_path"] + w["path"]
				}
				if len(worktrees) != 2 || paths["adopted"] != l.repo || filepath.Dir(filepath.Dir(paths["made"])) != filepath.Join(records, "worktrees") || !exists(paths["made"]) {
					t.Errorf("worktree ls %s: got %q, the repository is %q", form, paths, l.repo)
				}
			}
			for form, invocations := range map[string][]map[string]string{
				"--json":         parseJSONStrings(t, l.agency("ls", "--json")),
				"--porcelain":    parsePorcelain(t, l.agency("ls", "--porcelain")+"\n"),
				"--porcelain -z": parsePorcelainZ(t, l.agency("ls", "--porcelain", "-z")),
			} {
				i := invocations[0]
				if path, name := i["sandbox_path"]+i["path"], i["invocation_name"]+i["name"]; len(invocations) != 1 || path != sandbox || name != label {
					t.Errorf("ls %s: got %q, %q", form, path, name)
				}
			}
			for command, want := range map[string]string{
				"path " + id:                                sandbox,
				"worktree path adopted":                     l.repo,
				"ls --format=%(sandbox_path)":               sandbox,
				"ls --format=%(invocation_name)":            label,
				"worktree show " + adopted + " --porcelain": "",
			} {
				got := l.agency(strings.Fields(command)...)
				if want == "" {
					got, want = parsePorcelain(t, got+"\n")[0]["path"], l.repo
				}
				if got != want {
					t.Errorf("%s: got %q, want %q", command, got, want)
				}
			}
			place := parseJSONStrings(t, "["+l.agency("path", id, "--json")+"]")
			if place[0]["sandbox_path"] != sandbox {
				t.Errorf("path --json: got %q", place)
			}
		})
	}
}

// onlyEntry returns the path of the only entry of a directory.
func onlyEntry(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

// parseJSONStrings returns the string fields of a JSON array of objects.
func parseJSONStrings(t *testing.T, out string) []map[string]string {
	t.Helper()
	var objects []map[string]any
	if err := json.Unmarshal([]byte(out), &objects); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var texts []map[string]string
	for _, object := range objects {
		text := map[string]string{}
		for key, value := range object {
			if s, ok := value.(string); ok {
				text[key] = s
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// parsePorcelain parses --porcelain output as a script would: a value that begins with a double quote is C-quoted.
func parsePorcelain(t *testing.T, out string) []map[string]string {
	t.Helper()
	return parsePorcelainBlocks(t, strings.Split(strings.TrimSuffix(out, "\n"), "\n"), func(value string) string {
		if !strings.HasPrefix(value, `"`) {
			return value
		}
		return unquoteC(t, value)
	})
}

// parsePorcelainZ parses the output of --porcelain -z, in which no value is quoted.
func parsePorcelainZ(t *testing.T, out string) []map[string]string {
	t.Helper()
	return parsePorcelainBlocks(t, strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), func(value string) string { return value })
}

// parsePorcelainBlocks splits lines into blocks of keys and values; an empty line ends a block.
func parsePorcelainBlocks(t *testing.T, lines []string, decode func(string) string) []map[string]string {
	t.Helper()
	var found []map[string]string
	block := map[string]string{}
	for _, line := range lines {
		if line == "" {
			found, block = append(found, block), map[string]string{}
			continue
		}
		key, value, ok := strings.Cut(line, " ")
		if !ok || block[key] != "" {
			t.Fatalf("%q is not a line of a block", line)
		}
		block[key] = decode(value)
	}
	if len(block) > 0 {
		t.Fatalf("the last block is not terminated: %q", lines)
	}
	return found
}

// unquoteC decodes a path that git quoted like a C string: a backslash before a quote or backslash, a letter for some
// control characters, three octal digits for other bytes.
func unquoteC(t *testing.T, s string) string {
	t.Helper()
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		t.Fatalf("%q is not quoted", s)
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '"' {
			t.Fatalf("%q contains an unescaped quote", s)
		}
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch at := strings.IndexByte(`abtnvfr"\`, s[i]); {
		case at >= 0:
			b.WriteByte("\a\b\t\n\v\f\r\"\\"[at])
		default:
			n, err := strconv.ParseUint(s[i:i+3], 8, 8)
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			b.WriteByte(byte(n))
			i += 2
		}
	}
	return b.String()
}

func TestCQuoteMatchesGit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var names []string
	for c := byte(1); c < 0x80; c++ {
		if c != '/' {
			names = append(names, "x"+string(rune(c))+"y")
		}
	}
	for _, name := range names {
		l.write(filepath.Join(l.repo, "all", name), "")
	}
	l.git("add", "all")
	listed := strings.Split(l.git("-c", "core.quotePath=false", "ls-files", "all"), "\n")
	for _, name := range names {
		quoted := quote.Path("all/" + name)
		if strings.HasPrefix(quoted, `"`) && unquoteC(t, quoted) != "all/"+name {
			t.Errorf("%q was quoted as %s", name, quoted)
		}
		if !slices.Contains(listed, quoted) {
			t.Errorf("git does not print %s", quoted)
		}
	}
}
