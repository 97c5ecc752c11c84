package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// TestUseColorPrecedence tries all combinations: the flag wins over NO_COLOR, which wins over
// the setting; the first that is set decides alone.
func TestUseColorPrecedence(t *testing.T) {
	t.Parallel()
	words, truths := []string{"", "always", "auto", "never"}, []bool{false, true}
	combinations := 0
	for _, flag := range words {
		for _, noColor := range truths {
			for _, setting := range words {
				for _, terminal := range truths {
					for _, pager := range truths {
						for _, colorInPager := range truths {
							for _, dumb := range truths {
								q := colorPolicy{flag, noColor, setting, terminal, pager, colorInPager, dumb}
								combinations++
								able := !dumb && (pager && colorInPager || !pager && terminal)
								environment := ""
								if noColor {
									environment = "never"
								}
								values := []string{flag, environment, setting, "auto"}
								first := values[slices.IndexFunc(values, func(v string) bool { return v != "" })]
								want := map[string]bool{"always": true, "never": false, "auto": able}[first]
								if got := q.useColor(); got != want {
									t.Errorf("%+v: got %v", q, got)
								}
								if !q.needsSetting() {
									other := q
									other.setting = "always"
									if other.useColor() != q.useColor() {
										t.Errorf("%+v: needsSetting is false, but the setting changes the result", q)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if combinations != 512 {
		t.Errorf("tried %d combinations, want 512", combinations)
	}
}

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
		if code := tool.runCommandLine(t.Context(), append([]string{"git-agency"}, strings.Fields(line)...)); code != 0 || tool.colorFlag != want {
			t.Errorf("%s: got %d and %q, want %q", line, code, tool.colorFlag, want)
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
		code := newTool(&stdout, &stderr, gitagency.Options{}).runCommandLine(t.Context(), append([]string{"git-agency"}, strings.Fields(line)...))
		if code != exitUsage || !strings.HasPrefix(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: got %d, %q and %q", line, code, stdout.String(), stderr.String())
		}
	}
}

func TestPaintColumns(t *testing.T) {
	t.Parallel()
	l := style{color: true, links: true, host: "box"}
	for _, tt := range []struct{ column, value, want string }{
		{"ID", "20260128120500-b7c9", "\x1b[33m20260128120500-b7c9\x1b[m"},
		{"invocation", "20260128120500-b7c9", "\x1b[33m20260128120500-b7c9\x1b[m"},
		{"STATUS", "broken: missing-tree", "\x1b[31mbroken: missing-tree\x1b[m"},
		{"broken", "missing-tree", "\x1b[31mmissing-tree\x1b[m"},
		{"STATUS", "active", "\x1b[32mactive\x1b[m"},
		{"STATUS", "review", "\x1b[36mreview\x1b[m"},
		{"landing", "rejected", "\x1b[35mrejected\x1b[m"},
		{"STATUS", "discarded", "\x1b[2mdiscarded\x1b[m"},
		{"STATE", "present", "\x1b[32mpresent\x1b[m"},
		{"STATE", "archived", "\x1b[2marchived\x1b[m"},
		{"NAME", "broken", "broken"},
		{"ID", "", ""},
		{"PATH", "", ""},
		{"PATH", "/a b/%", "\x1b]8;;file://box/a%20b/%25\x1b\\/a b/%\x1b]8;;\x1b\\"},
	} {
		if got := l.paint(tt.column, tt.value, tt.value); got != tt.want {
			t.Errorf("%s %q: got %q, want %q", tt.column, tt.value, got, tt.want)
		}
		if got := (style{}).paint(tt.column, tt.value, tt.value); got != tt.value {
			t.Errorf("without color, %s %q: got %q", tt.column, tt.value, got)
		}
	}
}

func TestFileURLEscapesNonPrintable(t *testing.T) {
	t.Parallel()
	got := fileURL("box", "/tmp/new\nline\x1b]8;;é 日本/\"?#")
	for _, c := range []byte(got) {
		if c <= ' ' || c > '~' {
			t.Errorf("%q contains the unescaped byte %q", got, c)
		}
	}
	if want := "file://box/tmp/new%0Aline%1B%5D8;;%C3%A9%20%E6%97%A5%E6%9C%AC/%22%3F%23"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
