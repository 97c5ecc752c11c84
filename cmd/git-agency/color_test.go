package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/gitagency"
)

func TestLastColorFlagWins(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"version":                              "",
		"version --color":                      "always",
		"--color version":                      "always",
		"--color=never version":                "never",
		"version --color=auto":                 "auto",
		"version --no-color":                   "never",
		"--color version --no-color":           "never",
		"--no-color version --color":           "always",
		"--color=never version --color=always": "always",
		"--no-color worktree ls -h --color":    "always",
		"-color=auto version":                  "auto",
	} {
		tool := newTool(&bytes.Buffer{}, &bytes.Buffer{}, gitagency.Options{})
		if code := tool.RunCommandLine(t.Context(), append([]string{"git-agency"}, strings.Fields(line)...)); code != 0 || tool.Color.Value != want {
			t.Errorf("%s: got %d and %q, want %q", line, code, tool.Color.Value, want)
		}
	}
}

func TestInvalidColorFlagIsUsageError(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"version --color=purple":  "error: --color=purple: want always, auto or never",
		"version --color=":        "error: --color=: want always, auto or never",
		"--no-color=always ls":    "error: --no-color takes no value",
		"version --color always":  `error: unexpected argument "always"`, // as in git, the value must follow an equals sign
		"--color always version":  `error: "always" is not a command`,
		"version -- --color":      `error: unexpected argument "--color"`,
		"version --colour=always": `error: unknown option "--colour"; did you mean "--color"?`,
	} {
		var stdout, stderr bytes.Buffer
		code := newTool(&stdout, &stderr, gitagency.Options{}).RunCommandLine(t.Context(), append([]string{"git-agency"}, strings.Fields(line)...))
		if code != hints.ExitUsage || !strings.HasPrefix(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: got %d, %q and %q", line, code, stdout.String(), stderr.String())
		}
	}
}
