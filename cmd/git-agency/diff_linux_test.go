package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDiffOnTerminal checks that diff on a terminal follows the common pager and color rules and escapes control
// characters of files, with color or without; a pipe receives every byte unchanged.
func TestDiffOnTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	id := l.agency("start", "payments", "--isolation", "none")
	tree := l.agency("path", id)
	const steering = "title \x1b]0;pwned\x07 \x9b31m end"
	l.write(filepath.Join(tree, "readme"), steering+"\n")

	for _, c := range []struct {
		env  []string
		argv string
		want []string
		not  string
	}{
		{[]string{"GIT_PAGER=" + prefixPager}, "git agency diff ID", []string{"P: 1 file changed", "P:\x1b[1mdiff --git a/readme b/readme\x1b[m", "P:\x1b[31m-hello\x1b[m", "title ^[]0;pwned^G <9B>31m end"}, "\x1b]0"},
		{[]string{"GIT_PAGER=" + prefixPager}, "git agency diff ID --stat", []string{"P: readme | 2 "}, "P:P:"},
		{[]string{"GIT_PAGER=" + prefixPager}, "git -p agency diff ID", []string{"P:\x1b[31m-hello\x1b[m", "^[]0;pwned^G"}, "\x1b]0"},
		{[]string{"GIT_PAGER=" + prefixPager}, "git agency diff ID --json", []string{`"text": "title \u001b]0;pwned\u0007`}, "P:"},
		{[]string{"GIT_PAGER=cat"}, "git agency diff ID", []string{"\x1b[31m-hello\x1b[m", "^[]0;pwned^G"}, "\x1b]0"},
		{[]string{"GIT_PAGER=cat", "NO_COLOR=1"}, "git agency diff ID", []string{"-hello", "title ^[]0;pwned^G <9B>31m end"}, "\x1b"},
		{[]string{"GIT_PAGER=cat"}, "git agency diff ID --no-color", []string{"title ^[]0;pwned^G <9B>31m end"}, "\x1b"},
	} {
		out := l.startOnTerminal(100, c.env, strings.Fields(strings.ReplaceAll(c.argv, "ID", id))...).wait()
		for _, want := range c.want {
			if out.code != 0 || !strings.Contains(out.stdout, want) {
				t.Errorf("%q %s ended with %d: the output lacks %q: %q", c.env, c.argv, out.code, want, out.stdout)
			}
		}
		if strings.Contains(out.stdout, c.not) {
			t.Errorf("%q %s: the output contains %q: %q", c.env, c.argv, c.not, out.stdout)
		}
	}
	if out := l.startOnTerminal(100, []string{"GIT_PAGER=" + prefixPager}, "git", "agency", "diff", id, "--exit-code").wait(); out.code != 1 {
		t.Errorf("diff --exit-code ended with %d, want 1", out.code)
	}
	if out := l.must("git", "agency", "diff", id); !strings.Contains(out, "+"+steering) {
		t.Errorf("got %q", out)
	}
	if out := l.must("git", "agency", "diff", id, "--color"); strings.Contains(out, "\x1b]0") {
		t.Errorf("got %q", out)
	}
}
