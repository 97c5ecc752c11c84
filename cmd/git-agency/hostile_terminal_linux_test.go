package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// TestTerminalOutputEscapesHostileText checks that control, bidirectional and invisible characters in names and contents
// of an agent's files, branches and snapshots are escaped on a terminal, in every output format. The only escape
// sequences in the output are our own, for colors.
func TestTerminalOutputEscapesHostileText(t *testing.T) {
	t.Parallel()
	const steer = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\rover\u009b31m\u0085\u202e\u2066\u200b\u2028\u3164\U000e0041"
	colours := regexp.MustCompile("\x1b\\[[0-9;]*[mK]")
	for _, isolation := range []string{"none", "os"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			g := newHostileLab(t, isolation)
			file := "f" + steer
			for _, name := range []string{file, "name\nof two lines", ".env" + steer, "readme"} { // .env is excluded as a secret
				if err := os.WriteFile(filepath.Join(g.tree, name), []byte("content "+steer+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			g.must("git", "init", "-q", filepath.Join(g.tree, "nested"+steer))
			run := func(args ...string) {
				t.Helper()
				out := g.startOnTerminal(100, []string{"GIT_PAGER=cat"}, append([]string{"git-agency"}, args...)...).wait()
				shown := colours.ReplaceAllString(strings.ReplaceAll(out.stdout, "\r\n", "\n"), "")
				raw := func(c rune) bool { return c != '\n' && c != '\t' && !quote.IsPrintable(c) }
				if strings.ContainsFunc(shown, raw) || !utf8.ValidString(shown) {
					t.Errorf("%q prints raw control characters: %q", args, out.stdout)
				}
				if strings.Contains(shown, "owned") && args[0] == "diff" && len(args) == 2 && !strings.Contains(shown, "^[]0;owned") {
					t.Errorf("%q does not show the escaped content: %q", args, shown)
				}
			}
			run("snapshot", "create", g.id, "-m", "message "+steer)
			for _, form := range []string{"", "--json", "--porcelain"} {
				run(slices.DeleteFunc([]string{"snapshot", "ls", g.id, form}, func(word string) bool { return word == "" })...)
			}
			run("snapshot", "create", g.id, "--json")
			run("snapshot", "verify", g.id+"/2")
			run("snapshot", "verify", g.id+"/2", "--json")
			run("exec", g.id, "--json", "--", "printf", "%s", steer)
			for _, form := range []string{"", "--stat", "--name-status", "--json"} {
				args := []string{"diff", g.id}
				if form != "" {
					args = append(args, form)
				}
				run(args...)
			}
			run("diff", g.id, "--", file)
			run("diff", g.id, "--from", steer)
			// A nested repository that blocks the rollback.
			g.runAsAgent(`git checkout -q -b "$(printf 'x\302\2331m')" 2>/dev/null; rm -f readme; mkdir readme; git init -q readme/"$(printf 'n\033[2J')"`)
			run("snapshot", "rollback", g.id, g.id+"/1")
			run("snapshot", "rollback", g.id, steer)
			if err := os.RemoveAll(filepath.Join(g.tree, "readme")); err != nil {
				t.Fatal(err)
			}
			run("snapshot", "rollback", g.id, g.id+"/1")
			run("snapshot", "checkout", g.id+"/2", filepath.Join(g.dir, "copy"+steer))
			run("snapshot", "checkout", g.id+"/2", filepath.Join(g.dir, "second copy"+steer), "--json")
			run("start", "wt", "--from-snapshot", g.id+"/2")
			g.runAsAgent(`mkfifo d 2>/dev/null; mkdir -p "$(printf 'p\033[2J')" && mkfifo "$(printf 'p\033[2J')/.gitignore"`)
			run("snapshot", "create", g.id)
			run("discard", g.id)
		})
	}
}
