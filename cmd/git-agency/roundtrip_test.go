package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Whatever a directory is called, as long as a record can hold it: what a script reads is what it is.
func TestOddPathsAndNamesSurviveEveryFormat(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{
		"new\nline\n\nand another",
		`"quoted"`,
		"tab\tand \\ backslash\\n",
		"é 日本語 👨‍👩‍👧 e\u0301 \u200b\u202e",
		"\x01\x1b[31m\x7f\u0085 trailing ",
	} {
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
				"--json":         fromJSON(t, l.agency("worktree", "ls", "--json")),
				"--porcelain":    fromPorcelain(t, l.agency("worktree", "ls", "--porcelain")+"\n"),
				"--porcelain -z": fromPorcelainZ(t, l.agency("worktree", "ls", "--porcelain", "-z")),
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
				"--json":         fromJSON(t, l.agency("ls", "--json")),
				"--porcelain":    fromPorcelain(t, l.agency("ls", "--porcelain")+"\n"),
				"--porcelain -z": fromPorcelainZ(t, l.agency("ls", "--porcelain", "-z")),
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
					got, want = fromPorcelain(t, got+"\n")[0]["path"], l.repo
				}
				if got != want {
					t.Errorf("%s: got %q, want %q", command, got, want)
				}
			}
			place := fromJSON(t, "["+l.agency("path", id, "--json")+"]")
			if place[0]["sandbox_path"] != sandbox {
				t.Errorf("path --json: got %q", place)
			}
		})
	}
}

// onlyEntry is the path of what is alone in a directory.
func onlyEntry(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

// fromJSON keeps what is text.
func fromJSON(t *testing.T, out string) []map[string]string {
	t.Helper()
	var things []map[string]any
	if err := json.Unmarshal([]byte(out), &things); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var texts []map[string]string
	for _, thing := range things {
		text := map[string]string{}
		for key, value := range thing {
			if s, ok := value.(string); ok {
				text[key] = s
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// fromPorcelain reads blocks as a script would: a value that begins with a quote is quoted.
func fromPorcelain(t *testing.T, out string) []map[string]string {
	t.Helper()
	return blocks(t, strings.Split(strings.TrimSuffix(out, "\n"), "\n"), func(value string) string {
		if !strings.HasPrefix(value, `"`) {
			return value
		}
		return unquoteC(t, value)
	})
}

func fromPorcelainZ(t *testing.T, out string) []map[string]string {
	t.Helper()
	return blocks(t, strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), func(value string) string { return value })
}

func blocks(t *testing.T, lines []string, decode func(string) string) []map[string]string {
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
		t.Fatalf("the last block is not ended: %q", lines)
	}
	return found
}

// unquoteC undoes what git does to paths: backslashes before quotes and backslashes, letters for some
// characters, three octal digits for the others.
func unquoteC(t *testing.T, s string) string {
	t.Helper()
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		t.Fatalf("%q is not quoted", s)
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '"' {
			t.Fatalf("%q holds a quote that ends it", s)
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

func TestQuotingIsGitsOwn(t *testing.T) {
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
		quoted := cQuote("all/" + name)
		if unquoteC(t, quoted) != "all/"+name {
			t.Errorf("%q became %s", name, quoted)
		}
		if !slices.Contains(listed, quoted) && !slices.Contains(listed, "all/"+name) {
			t.Errorf("git does not write %s", quoted)
		}
	}
}
