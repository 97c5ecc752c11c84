package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTerminalOutputEscapesHostileText checks that control characters in names and contents of an agent's files, branches
// and snapshots are escaped on a terminal. The only escape sequences in the output are our own, for colors.
func TestTerminalOutputEscapesHostileText(t *testing.T) {
	t.Parallel()
	const steer = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\rover"
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
				if i := strings.IndexAny(shown, "\x1b\x07\x08\r\u009b"); i >= 0 || strings.Contains(shown, "\x9b") {
					t.Errorf("%q prints raw control characters: %q", args, out.stdout)
				}
				if strings.Contains(shown, "owned") && args[0] == "diff" && len(args) == 2 && !strings.Contains(shown, "^[]0;owned") {
					t.Errorf("%q does not show the escaped content: %q", args, shown)
				}
			}
			run("snapshot", "create", g.id, "-m", "message "+steer)
			run("snapshot", "ls", g.id)
			run("snapshot", "verify", g.id+"/2")
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
			run("snapshot", "checkout", g.id+"/2", filepath.Join(g.dir, "copy"))
			run("start", "wt", "--from-snapshot", g.id+"/2")
			g.runAsAgent(`mkfifo d 2>/dev/null; mkdir -p "$(printf 'p\033[2J')" && mkfifo "$(printf 'p\033[2J')/.gitignore"`)
			run("snapshot", "create", g.id)
			run("discard", g.id)
		})
	}
}
