package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTablesAbbreviateIDsOnTerminal lists invocations of which two have ids that end alike. Tables on a terminal have short
// ids, as far as they are unique among all invocations; everything else has full ones.
func TestTablesAbbreviateIDsOnTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	at := func(second, digit string, args ...string) {
		t.Helper()
		if o := l.try([]string{"TEST_NOW=2026-01-28T12:00:" + second + "Z", "TEST_RAND=" + digit}, append([]string{"git-agency"}, args...)...); o.code != 0 {
			t.Fatalf("%q: %s", args, o.stderr)
		}
	}
	at("00", "a", "worktree", "create", "wt")
	at("01", "b", "start", "wt", "--name", "ended")
	at("02", "b", "start", "wt", "--name", "again")
	at("03", "c", "start", "wt", "--name", "other")
	at("04", "b", "discard", "20260128120001-6262")
	tree := l.agency("path", "20260128120003-6363")
	l.write(filepath.Join(tree, "work"), "done\n")
	l.git("-C", tree, "add", "work")
	l.git("-C", tree, "commit", "-q", "-m", "work")
	l.agency("submit", "20260128120003-6363")
	firstColumns := func(text string) string {
		found := ""
		for line := range strings.Lines(text) {
			if first, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(first, "20") || first == "6262" || first == "6363" {
				found += first + " "
			}
		}
		return found
	}
	const full, short = "20260128120002-6262 20260128120003-6363 ", "20260128120002-6262 6363 "
	for _, tt := range []struct{ args, want string }{
		{"ls", short},
		{"ls --no-abbrev", full},
		{"ls --format=%(invocation_id)", full},
		{"radar wt", short},
		{"radar wt --no-abbrev", full},
		{"land --all-ready wt --dry-run", "6363 "},
		{"land --all-ready wt --dry-run --no-abbrev", "20260128120003-6363 "},
	} {
		args := append([]string{"git-agency", "--no-color"}, strings.Fields(tt.args)...)
		if got := l.startOnTerminal(200, []string{"GIT_PAGER=cat"}, args...).wait(); firstColumns(got.stdout) != tt.want {
			t.Errorf("%s on a terminal: %q, want %q in %+v", tt.args, firstColumns(got.stdout), tt.want, got)
		}
		if got := l.try(nil, args...); strings.Contains("\n"+got.stdout, "\n6363") {
			t.Errorf("%s on a pipe: %+v", tt.args, got)
		}
	}
	if o := l.try(nil, "git-agency", "land", "20260128120003-6363", "--no-abbrev"); o.code != 129 {
		t.Errorf("--no-abbrev without --all-ready: %+v", o)
	}
}
