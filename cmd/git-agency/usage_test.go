package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

// TestUsageErrors checks the messages for invalid command lines, all of which are refused without a repository.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"discard":                     "error: no <id> given\nusage: git agency discard <id>",
		"put":                         "error: no <id> given\n",
		"put --json -":                "error: no <id> given\n",
		"put 2026":                    "error: no <src> given\n",
		"put 2026 file":               "error: no <dest> given\n",
		"worktree create":             "error: no <name> given\n",
		"completion":                  "error: no (bash|zsh|fish) given\n",
		"exec -it 2026 -- sh":         `error: unknown option "-it"` + "\n",
		"exec --it 2026 -- sh -it":    `error: unknown option "--it"` + "\n",
		"start --from-snap 2026/1":    `error: unknown option "--from-snap"; did you mean "--from-snapshot"?` + "\n",
		"start --lock=x":              `error: unknown option "--lock"; did you mean "--lock-timeout"?` + "\n",
		"snapshot create --include":   `error: unknown option "--include"` + "\n",
		"start -runer=x":              `error: unknown option "-runer"; did you mean "--runner"?` + "\n",
		"land 2026 --squash":          `error: unknown option "--squash"; did you mean "--strategy squash"?` + "\n",
		"diff 2026 --squash":          `error: unknown option "--squash"` + "\n",
		"restore 2026 --frce":         "hint: 'git agency restore -h' lists the options\n",
		"snapshot ls 2026 --frce":     "hint: 'git agency snapshot ls -h' lists the options\n",
		"--frce":                      "hint: 'git agency -h' lists the options\n",
		"discard 2026 --frce":         `error: unknown option "--frce"; did you mean "--force"?` + "\n",
		"undiscard 2026":              `error: "undiscard" is not a command of git agency; did you mean "restore"?` + "\n",
		"get":                         `error: "get" is not a command of git agency` + "\n",
		"snapshot crate":              `error: "crate" is not a command of git agency snapshot; did you mean "create"?` + "\n",
		"snapshot 20260128120500-b7c": "hint: type 'git agency snapshot create 20260128120500-b7c'\n",
		"snapshot restore":            `error: "restore" is not a command of git agency snapshot; did you mean "rollback"?` + "\n",
		"rollback 2026":               `error: "rollback" is not a command of git agency; did you mean "snapshot rollback"?` + "\n",
		"create":                      `error: "create" is not a command of git agency` + "\n",
		"rm 2026":                     `error: "rm" is not a command of git agency; did you mean "discard"?` + "\n",
		"config agency.x 5m":          "hint: this only lists settings; to read or change one, type: git config agency.x 5m\n",
	} {
		code, stdout, stderr := runCommand(t, strings.Fields(line)...)
		if code != hints.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exited with %d, %q and\n%swant %s", line, code, stdout, stderr, want)
		}
	}
}

func TestInterruptedErrorText(t *testing.T) {
	t.Parallel()
	if got := (program.InterruptedError{Signal: syscall.SIGINT}).Error(); got != "interrupted" {
		t.Errorf("%q", got)
	}
}
