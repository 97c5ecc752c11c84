package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
)

// prefixPager is a pager that marks every line, so that a test sees whether and how often output was paged.
const prefixPager = "sed s/^/P:/"

func TestTableFitsTerminalWithPathLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	tree := l.agency("worktree", "create", "payments")
	table := func(columns int) string {
		t.Helper()
		out := l.startOnTerminal(columns, []string{"GIT_PAGER=cat"}, "git", "agency", "worktree", "ls").wait()
		lines := strings.Split(strings.TrimSuffix(out.stdout, "\n"), "\n")
		if out.code != 0 || len(lines) != 2 {
			t.Fatalf("got %d and %q", out.code, out.stdout)
		}
		for _, line := range lines {
			shown := escapeSequences.ReplaceAllString(line, "")
			if w := displaywidth.String(shown); w > columns || strings.HasSuffix(shown, " ") || strings.HasSuffix(shown, "…") {
				t.Errorf("%q has width %d, trailing spaces or a cut word", shown, w)
			}
		}
		return out.stdout
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	wide := table(80 + len(tree))
	for _, want := range []string{"\x1b[1mPATH\x1b[m", "\x1b[1mCREATED\x1b[m", "\x1b[32mpresent\x1b[m", "\x1b]8;;file://" + host + tree + "\x1b\\"} {
		if !strings.Contains(wide, want) {
			t.Errorf("%q is not in %q", want, wide)
		}
	}
	// Columns are left out, and none is cut.
	if narrow := table(70); strings.Contains(narrow, "PATH") || strings.Contains(narrow, "CREATED") || !strings.Contains(narrow, "\x1b[32mpresent\x1b[m") {
		t.Errorf("got %q", narrow)
	}
	// show does not cut lines.
	if out := l.startOnTerminal(40, nil, "git", "agency", "worktree", "show", "payments").wait(); !strings.Contains(out.stdout, "\x1b\\"+tree+"\x1b]8;;\x1b\\\n") {
		t.Errorf("got %q", out.stdout)
	}
}

// TestTextsFitTerminal checks that config and doctor wrap their long texts between words, and that config shortens values.
func TestTextsFitTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for command, last := range map[string]string{"config": "cannot name one", "doctor": "completion fish     missing  install it with 'git agency setup'"} {
		out := l.startOnTerminal(80, []string{"GIT_PAGER=cat"}, "git", "agency", command).wait()
		shown := escapeSequences.ReplaceAllString(out.stdout, "")
		if out.code != 0 || !strings.HasSuffix(shown, last+"\n") {
			t.Errorf("%s: got %d and %q", command, out.code, shown)
		}
		for line := range strings.Lines(shown) {
			if w := displaywidth.String(strings.TrimSuffix(line, "\n")); w > 80 {
				t.Errorf("%s: %q has width %d", command, line, w)
			}
		}
	}
}

// TestRadarLeavesOutNames checks that radar on a narrow terminal leaves the names out, and shows all paths.
func TestRadarLeavesOutNames(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	const path = "a/path/that/takes/more/than/half/of/the/line"
	for _, name := range []string{"one of the sandboxes", "another of the sandboxes"} {
		tree := l.agency("path", l.agency("start", "--isolation", "none", "--name", name))
		l.write(filepath.Join(tree, path), name)
	}
	out := l.startOnTerminal(80, []string{"GIT_PAGER=cat", "NO_COLOR=1"}, "git", "agency", "radar").wait()
	_, pairs, _ := strings.Cut(out.stdout, "\n\n")
	if strings.Contains(pairs, "NAME") || strings.Contains(pairs, "sandboxes") || !strings.Contains(pairs, path+"\n") {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
	if out := l.startOnTerminal(200, []string{"GIT_PAGER=cat", "NO_COLOR=1"}, "git", "agency", "radar").wait(); strings.Count(out.stdout, "another of the sandboxes") != 2 {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
}

func TestColorOnTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	for _, tt := range []struct {
		env    []string
		argv   string
		colour bool
	}{
		{nil, "git agency worktree ls", true},
		{[]string{"NO_COLOR=1"}, "git agency worktree ls", false},
		{[]string{"NO_COLOR="}, "git agency worktree ls", true},
		{[]string{"NO_COLOR=1"}, "git agency worktree ls --color", true},
		{[]string{"TERM=dumb"}, "git agency worktree ls", false},
		{[]string{"TERM="}, "git agency worktree ls", false},
		{nil, "git agency worktree ls --no-color", false},
		{nil, "git agency --no-color worktree --color=auto ls", true},
		{nil, "git -c color.ui=never agency worktree ls", false},
		{nil, "git -c color.ui=never -c color.agency=auto agency worktree ls", true},
		{nil, "git agency worktree ls --porcelain", false},
		{nil, "git agency worktree ls --json --color", false},
		{nil, "git agency worktree show nothing", true}, // a hint
		{nil, "git -c color.ui=false agency worktree show nothing", false},
		{[]string{"NO_COLOR=1"}, "git agency worktree show nothing", false},
	} {
		out := l.startOnTerminal(80, append(tt.env, "GIT_PAGER=cat"), strings.Fields(tt.argv)...).wait()
		if out.stdout == "" || strings.Contains(out.stdout, "\x1b") != tt.colour {
			t.Errorf("%q %s: got %d and %q", tt.env, tt.argv, out.code, out.stdout)
		}
	}
}

// TestOutcomeColorsOnTerminal checks that doctor and land color what is good green and what is not red.
func TestOutcomeColorsOnTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	first, second := l.agency("start", "--isolation", "none"), l.agency("start", "--isolation", "none")
	for _, id := range []string{first, second} {
		tree := l.agency("path", id)
		l.write(filepath.Join(tree, "same"), id)
		l.git("-C", tree, "add", "same")
		l.git("-C", tree, "commit", "-qm", id)
	}
	shown := func(want []string, argv string, env ...string) {
		t.Helper()
		out := l.startOnTerminal(200, append(env, "GIT_PAGER=cat"), strings.Fields(argv)...).wait()
		for _, w := range want {
			if !strings.Contains(out.stdout, w) {
				t.Errorf("%s: %q is not in %q", argv, w, out.stdout)
			}
		}
		if out.stdout == "" || want == nil && strings.Contains(out.stdout, "\x1b") {
			t.Errorf("%s: got %q", argv, out.stdout)
		}
	}
	const green, red, end = "\x1b[32m", "\x1b[31m", "\x1b[m"
	shown([]string{green + "nothing is wrong" + end + "\n", green + "ok" + end + " "}, "git agency doctor")
	shown([]string{green + "nothing is wrong" + end + " with main\n"}, "git agency doctor --fix main")
	shown(nil, "git agency doctor", "NO_COLOR=1")
	shown(nil, "git agency doctor --json")
	shown(nil, "git agency land "+first+" --dry-run", "NO_COLOR=1")
	shown([]string{"would have " + green + "landed" + end + " 1 commit of "}, "git agency land "+first+" --dry-run")
	shown([]string{green + "landed" + end + " 1 commit of "}, "git agency land "+first)
	shown([]string{red + "error:" + end + " ", "contents\tsame\n"}, "git agency land "+second)
	shown(nil, "git agency land "+second, "NO_COLOR=1")
	l.agency("submit", second)
	shown([]string{red + "conflicts" + end}, "git agency land --all-ready")

	if err := os.RemoveAll(l.agency("path", second)); err != nil {
		t.Fatal(err)
	}
	shown([]string{red + "missing-tree" + end + " ", "  risk  " + green + "no work is at risk" + end + "\n"}, "git agency doctor")
	shown(nil, "git agency doctor --porcelain --no-color")
}

func TestColorInPagerFollowsColorPager(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	for argv, colour := range map[string]bool{
		"git agency worktree ls":                                         true,
		"git -p agency worktree ls":                                      true,
		"git -c color.pager=false agency worktree ls":                    false,
		"git -c color.pager=false -p agency worktree ls":                 false,
		"git -c color.pager=false agency worktree ls --color":            true,
		"git -c color.pager=false -c color.ui=always agency worktree ls": true,
	} {
		out := l.startOnTerminal(80, []string{"PAGER=" + prefixPager}, strings.Fields(argv)...).wait()
		if !strings.Contains(out.stdout, "P:") || strings.Contains(out.stdout, "\x1b") != colour {
			t.Errorf("%s: got %q", argv, out.stdout)
		}
		if strings.Contains(out.stdout, "\x1b]8") {
			t.Errorf("%s: hyperlink in the output to a pager: %q", argv, out.stdout)
		}
	}
}

func TestPagerUsedOnceForListings(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	id := l.agency("start", "payments")
	own := "pager.agency=sed s/^/A:/"
	for _, tt := range []struct {
		argv  []string
		env   []string
		begin string // prefix of every line
	}{
		{[]string{"git", "agency", "ls"}, nil, "P:"},
		{[]string{"git-agency", "ls"}, nil, "P:"},
		{[]string{"git", "agency", "worktree", "ls"}, nil, "P:"},
		{[]string{"git", "agency", "worktree", "list"}, nil, "P:"},
		{[]string{"git", "agency", "config"}, nil, "P:"},
		{[]string{"git", "agency", "help", "ls"}, nil, "P:"},
		{[]string{"git", "agency", "help"}, nil, "P:"},
		{[]string{"git", "-c", "core.pager=sed s/^/C:/", "agency", "ls"}, nil, "C:"},
		{[]string{"git", "-c", own, "agency", "ls"}, nil, "A:"},
		{[]string{"git", "-c", own, "agency", "ls"}, []string{"GIT_PAGER=sed s/^/G:/"}, "G:"},

		{[]string{"git", "-p", "agency", "ls"}, nil, "P:"},
		{[]string{"git", "-c", "pager.agency=true", "agency", "ls"}, nil, "P:"},
		{[]string{"git", "-c", "pager.agency=true", "agency", "path", id}, nil, "P:"},
		{[]string{"git-agency", "path", id}, []string{"GIT_CONFIG_PARAMETERS='pager.agency'='true'"}, "P:"},
		{[]string{"git-agency", "ls"}, []string{"GIT_CONFIG_PARAMETERS='pager.agency'='sed s/^/A:/'"}, "A:"},

		{[]string{"git", "--no-pager", "agency", "ls"}, nil, ""},
		{[]string{"git", "-c", "pager.agency=false", "agency", "ls"}, nil, ""},
		{[]string{"git-agency", "ls"}, []string{"GIT_CONFIG_PARAMETERS='pager.agency'='no'"}, ""},
		{[]string{"git", "agency", "ls"}, []string{"GIT_PAGER=cat"}, ""},
		{[]string{"git", "agency", "ls"}, []string{"GIT_PAGER="}, ""},
		{[]string{"git", "agency", "ls", "--json"}, nil, ""},
		{[]string{"git", "agency", "ls", "--porcelain"}, nil, ""},
		{[]string{"git", "agency", "ls", "--format=%(status)"}, nil, ""},
		{[]string{"git", "agency", "show", id}, nil, ""},
		{[]string{"git", "agency", "ls", "-h"}, nil, ""},
		{[]string{"git", "agency", "version"}, nil, ""},
	} {
		out := l.startOnTerminal(80, append([]string{"PAGER=" + prefixPager}, tt.env...), tt.argv...).wait()
		if out.code != 0 || out.stdout == "" {
			t.Errorf("%q %q: got %d and %q", tt.env, tt.argv, out.code, out.stdout)
		}
		for line := range strings.Lines(out.stdout) {
			if rest, ok := strings.CutPrefix(line, tt.begin); !ok || len(rest) > 1 && rest[1] == ':' {
				t.Errorf("%q %q: got %q", tt.env, tt.argv, line)
			}
		}
	}
}

func TestEmptyOutputStartsNoPager(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	mark := filepath.Join(l.dir, "paged")
	for _, argv := range [][]string{{"git", "agency", "ls"}, {"git", "agency", "ls", "--worktree", "nothing"}} {
		l.startOnTerminal(80, []string{"PAGER=touch '" + mark + "'"}, argv...).wait()
		if exists(mark) {
			t.Fatalf("%q started a pager", argv)
		}
	}
}

func TestRepositoryConfigCannotSetPager(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, tool string }{
		{"core.pager", "git agency"},
		{"core.pager", "git-agency"},
		{"pager.agency", "git-agency"}, // not with git, which reads it and starts that pager itself
	} {
		key, l := tt.key, newLab(t)
		l.agency("worktree", "create", "payments")
		mark := filepath.Join(l.dir, "evil")
		l.git("config", key, "touch '"+mark+"'; cat")
		out := l.startOnTerminal(200, []string{"PAGER=" + prefixPager}, strings.Fields(tt.tool+" worktree ls --no-color")...).wait()
		if exists(mark) {
			t.Errorf("%s of the repository was executed", key)
		}
		if !strings.Contains(out.stdout, "warning: ignoring "+key+" = ") || !strings.Contains(out.stdout, "P:ID") || out.code != 0 {
			t.Errorf("%s: got %d and %q", key, out.code, out.stdout)
		}
	}
}

// newLongListingLab makes a repository whose listing is longer than the buffer of a pipe.
func newLongListingLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	tree := l.agency("worktree", "create", "payments")
	records := filepath.Dir(filepath.Dir(filepath.Dir(tree)))
	for i := range 2000 {
		if err := os.MkdirAll(filepath.Join(records, "invocations", fmt.Sprintf("20260128120000-%04x", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestPagerExitingEarlyIsNoError(t *testing.T) {
	t.Parallel()
	l := newLongListingLab(t)
	out := l.startOnTerminal(80, []string{"PAGER=head -n 1"}, "git", "agency", "ls", "--all").wait()
	if out.code != 141 || strings.Count(out.stdout, "\n") != 1 {
		t.Errorf("got %d and %.300q", out.code, out.stdout)
	}
}

func TestInterruptWaitsForPager(t *testing.T) {
	t.Parallel()
	l := newLongListingLab(t)
	for name, tt := range map[string]struct{ reads, argv string }{
		"all output read": {"cat >/dev/null", "git agency worktree ls"},
		"output pending":  {"head -c 10 >/dev/null", "git agency ls --all"},
		"without git":     {"head -c 10 >/dev/null", "git-agency ls --all"},
		"paged by git":    {"head -c 10 >/dev/null", "git -p agency ls --all"},
		"other command":   {"cat >/dev/null", "git agency config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pager := `trap 'echo INTERRUPTED' INT; ` + tt.reads + `; echo READY; while ! read -r key </dev/tty; do :; done; echo "LEFT by $key"`
			s := l.startOnTerminal(80, []string{"PAGER=" + pager}, strings.Fields(tt.argv)...)
			s.waitForText("READY")
			s.typeUntil("\x03", "INTERRUPTED")
			s.typeKeys("q\n")
			out := s.wait()
			// With output pending, git-agency may get SIGPIPE (141) before it handles SIGINT (130).
			expected := out.code == 130 || out.code == 141 && strings.HasPrefix(tt.reads, "head")
			if !expected || !strings.HasSuffix(out.stdout, "LEFT by q\n") || strings.Contains(out.stdout, "error") {
				t.Errorf("got %d and %q", out.code, out.stdout)
			}
		})
	}
}

func TestMissingPagerPrintsDirectly(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	for _, pager := range []string{"no-such-pager", "no-such-pager -R"} {
		out := l.startOnTerminal(80, []string{"PAGER=" + pager}, "git", "agency", "worktree", "ls", "--no-color").wait()
		if out.code != 0 || !strings.Contains(out.stdout, `warning: cannot run the pager "`+pager+`"`) || strings.Count(out.stdout, "payments  agency/") != 1 {
			t.Errorf("%s: got %d and %q", pager, out.code, out.stdout)
		}
	}
}

func TestPagerKeepsExitCodeAndGetsMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	id := l.agency("start", "payments")
	if err := os.RemoveAll(l.agency("path", id)); err != nil {
		t.Fatal(err)
	}
	env := []string{"PAGER=" + prefixPager + "; exit 7", "GIT_CONFIG_PARAMETERS='pager.agency'='true'"}
	out := l.startOnTerminal(80, env, "git-agency", "show", id, "--no-color").wait()
	result, message := strings.Index(out.stdout, "P:broken "), strings.Index(out.stdout, "P:error: ")
	if out.code != 4 || result < 0 || message < result || !strings.Contains(out.stdout, "P:hint: ") {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
	// Messages do not go to the pager if stderr is not the terminal.
	out = l.startOnTerminal(80, env, "sh", "-c", "git-agency show "+id+" 2>messages").wait()
	if out.code != 4 || strings.Contains(out.stdout, "error") || !strings.Contains(l.read(filepath.Join(l.repo, "messages")), "error: ") {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
}

func TestInvalidColorSettingIsReported(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	l.git("config", "color.agency", "purple")
	for argv, want := range map[string]struct {
		code int
		text string
	}{
		"git agency worktree ls":             {129, `invalid color.agency (file:.git/config) "purple": want always, auto or never`},
		"git agency worktree ls --porcelain": {0, "worktree "},
		"git agency version":                 {0, "git-agency version"},
		"git agency config":                  {0, `warning: color.agency = "purple" (file:.git/config): want always, auto or never`},
	} {
		out := l.startOnTerminal(80, nil, strings.Fields(argv)...).wait()
		if out.code != want.code || !strings.Contains(out.stdout, want.text) {
			t.Errorf("%s: got %d and %q", argv, out.code, out.stdout)
		}
	}
}

func TestFormatEscapesControlsOnTerminalOnly(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	id := l.agency("start", "payments", "--name", "harmless")
	record := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(l.agency("path", id)))), "invocations", id, "meta.json")
	l.write(record, strings.Replace(l.read(record), "harmless", `a\u001b[2J\u0007\nb`, 1))
	const format = "--format=%1b[1m%(invocation_name)%1b[m"
	if got, want := l.startOnTerminal(80, nil, "git", "agency", "ls", format).wait().stdout, "\x1b[1ma\\x1b[2J\\a\\nb\x1b[m\n"; got != want {
		t.Errorf("on a terminal: got %q, want %q", got, want)
	}
	if got, want := l.must("git", "agency", "ls", format), "\x1b[1ma\x1b[2J\a\nb\x1b[m"; got != want {
		t.Errorf("in a pipe: got %q, want %q", got, want)
	}
}
