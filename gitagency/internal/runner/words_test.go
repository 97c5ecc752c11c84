package runner

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                              nil,
		" \t\n ":                        nil,
		"claude":                        {"claude"},
		"  claude   -p\t--x=y \n":       {"claude", "-p", "--x=y"},
		`"/opt/my agent/bin" --a 'b c'`: {"/opt/my agent/bin", "--a", "b c"},
		`/opt/my\ agent/bin`:            {"/opt/my agent/bin"},
		`a'b'"c"d`:                      {"abcd"},
		`'' "" x`:                       {"", "", "x"},
		`'it'\''s'`:                     {"it's"},
		`"a\"b\\c\$d\e"`:                {`a"b\c$d\e`},
		`'a\b'`:                         {`a\b`},
		`a $HOME *.go`:                  {"a", "$HOME", "*.go"}, // nothing is expanded
		"a \\\n b":                      {"a", "b"},
		"a\\\nb":                        {"ab"},
		"caf\xe9 \xff":                  {"caf\xe9", "\xff"}, // paths need not be UTF-8
	} {
		if got, err := SplitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`"`, `'`, `a "b`, `a 'b`, `a\`, `"a\"`, `'\''`} {
		if got, err := SplitWords(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestExecLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"agent":                    "exec agent",
		"~/agent.sh --x \"$HOME\"": "exec ~/agent.sh --x \"$HOME\"",
		"'/opt/my agent' <in":      "exec '/opt/my agent' <in",
		"agent | tee log":          "agent | tee log",
		"agent; true":              "agent; true",
		"KEY=1 agent":              "KEY=1 agent",
		"$AGENT --fast":            "$AGENT --fast",
		"cd sub":                   "cd sub",
		"if true; then agent; fi":  "if true; then agent; fi",
		"agent\nother":             "agent\nother",
		"agent 'unterminated":      "agent 'unterminated",
		"":                         "",
	} {
		if got := ExecLine(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// FuzzSplitWords checks that the words, joined in single quotes, split into the same words.
func FuzzSplitWords(f *testing.F) {
	for _, seed := range []string{"", "claude -p", `"a b" 'c' \d`, `"\"`, "a\\\nb", "\xff' '"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitWords(line)
		if err != nil {
			if words != nil {
				t.Errorf("%q: both an error and %q", line, words)
			}
			return
		}
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		again, err := SplitWords(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q is %q, but quoted and split again %q, %v", line, words, again, err)
		}
	})
}
