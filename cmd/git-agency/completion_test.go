package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func TestCompletionKnowsEveryCommandAndEveryFlagThatTakesAValue(t *testing.T) {
	t.Parallel()
	app := newTool(io.Discard, io.Discard, gitagency.Options{}).newApp()
	check := func(command string, flags []cli.Flag) {
		for _, f := range flags {
			doc, ok := f.(cli.DocGenerationFlag)
			if !ok || !doc.TakesValue() {
				continue
			}
			known := slices.ContainsFunc(f.Names(), func(name string) bool {
				_, here := flagListers[command+" "+withDashes(name)]
				_, anywhere := flagListers[withDashes(name)]
				return here || anywhere
			})
			if !known {
				t.Errorf("flagKinds does not say what --%s of %q stands for", f.Names()[0], command)
			}
		}
	}
	check("", app.Flags)
	// What is left of a usage line without its flags are the arguments.
	flag := regexp.MustCompile(`\[?--?[a-z-]+(=| )?(<[^>]*>)?\]?`)
	for name, c := range leaves("", app.Commands) {
		name = strings.TrimPrefix(name, " ")
		check(name, c.Flags)
		kinds, ok := argumentListers[name]
		if !ok {
			t.Errorf("argumentKinds does not say what the arguments of %q stand for", name)
		}
		if strings.Contains(flag.ReplaceAllString(c.UsageText, ""), "<") && len(kinds) == 0 {
			t.Errorf("argumentKinds says that %q has no arguments; its usage is %q", name, c.UsageText)
		}
	}
}

// newCompletionLab is a lab with one of everything that completion tells apart.
func newCompletionLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	at := func(second int, digit string, args ...string) {
		t.Helper()
		env := []string{fmt.Sprintf("TEST_NOW=2026-01-28T12:00:%02dZ", second), "TEST_RAND=" + digit}
		if o := l.try(env, append([]string{"git-agency"}, args...)...); o.code != 0 {
			t.Fatalf("%q: %s", args, o.stderr)
		}
	}
	at(0, "a", "worktree", "create", "wt")
	at(1, "a", "worktree", "create", "payments")
	at(2, "a", "worktree", "create", "archived")
	at(3, "a", "worktree", "create", "bad")
	at(10, "b", "start", "wt", "--name", hostileName)
	at(11, "b", "start", "payments")
	at(12, "b", "start", "payments", "--name", "done")
	at(13, "b", "start", "wt", "--name", "lost")
	at(14, "b", "snapshot", "create", "20260128120012-6262", "-m", "one\n\nand more")
	at(15, "b", "snapshot", "create", "20260128120010-6262")
	at(20, "c", "discard", "20260128120012-6262")
	at(21, "c", "worktree", "rm", "archived")
	for _, tree := range []string{"worktrees/20260128120003-6161", "sandboxes/20260128120013-6262"} {
		if err := os.RemoveAll(filepath.Join(l.repoData(), tree, "tree")); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"in sandbox/deep/down", ".agency/hidden", "in sandbox/.git"} {
		mkdir(t, filepath.Join(l.repoData(), "sandboxes", "20260128120010-6262", "tree", dir))
	}
	l.git("config", "agency.my profile.changeset", "worktree")
	l.git("config", "agency.a:b.isolation", "none")
	l.git("config", "agency.$(touch pwned).isolation", "none")
	l.git("config", "agency.misspelt.isolatoin", "none")
	l.git("config", "agency.claude.command", "claude --yes")
	return l
}

// hostileName is a label that a shell must never get to see as anything but text.
const hostileName = "$(touch pwned) 'x' \"y\" a:b `touch pwned` %F{red} \\"

// What newCompletionLab has, as it is offered.
const (
	liveInvocations = "20260128120010-6262\t" + hostileName + ", wt, active\n" +
		"20260128120011-6262\tpayments, active\n"
	doneInvocation = "20260128120012-6262\tdone, payments, discarded\n"
	lostInvocation = "20260128120013-6262\tlost, wt, broken: missing-tree\n"

	snapshotCandidates = "20260128120010-6262/1\tagency: snapshot 1 of sandbox 20260128120010-6262, now\n" +
		"20260128120012-6262/1\tone, now\n"

	presentNames = "wt\tagency/wt-6161\npayments\tagency/payments-6161\n"
	presentIDs   = "20260128120000-6161\twt\n20260128120001-6161\tpayments\n"
	badWorktree  = "20260128120003-6161\tworktree, bad, broken: missing-tree\n"
)

// inside runs the tool within this process, in the lab's repository.
func (l *lab) inside(opts gitagency.Options, args ...string) outcome {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	opts.Dir, opts.Env = l.repo, l.env
	code := newTool(&stdout, &stderr, opts).runCommandLine(l.t.Context(), append([]string{"git-agency"}, args...))
	return outcome{code, stdout.String(), stderr.String()}
}

// ask asks for the candidates of the last word.
func (l *lab) ask(words ...string) outcome {
	l.t.Helper()
	long := func() time.Time { return time.Time{} } // before anything was made, so that all of it is from now
	return l.inside(gitagency.Options{Now: long}, append([]string{"__complete", "--"}, words...)...)
}

func TestCompletionOffersWhatTheWordStandsFor(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	tests := []struct {
		name, line string // the last word of the line is the one at the cursor; ~ is an empty one
		want       string
	}{
		{"a worktree to start from, by name and by id", "start ~", presentNames + presentIDs},
		{"the beginning of a word changes nothing", "start pay", presentNames + presentIDs},
		{"a worktree to look at may be broken", "worktree show ~", presentNames + presentIDs + badWorktree},
		{"a worktree to find may be broken", "worktree path ~", presentNames + presentIDs + badWorktree},
		{"a worktree to remove may be broken", "worktree rm ~", presentNames + presentIDs + badWorktree},
		{"a worktree as a value", "ls --worktree ~", presentNames + presentIDs},
		{"one worktree is enough", "start wt ~", ""},
		{"flags are no arguments", "start --json --name x ~", presentNames + presentIDs},

		{"every invocation can be shown", "show ~", liveInvocations + doneInvocation + lostInvocation},
		{"every invocation has had a path", "path ~", liveInvocations + doneInvocation + lostInvocation},
		{"an alias of a command is the command", "worktree list --all", "--all\talso those that are archived or broken\n--json\tprint JSON\n--porcelain\tprint blocks of 'key value' lines for scripts\n-z\twith --porcelain, end lines with NUL instead of newline\n" + colorLines + "--help\tshow help\n"},
		{"commands run where there is a sandbox", "exec ~", liveInvocations},
		{"behind two dashes stands a command", "exec 20260128120010-6262 -- ~", "\tcommands\n"},
		{"it begins in a directory of the sandbox", "exec 20260128120010-6262 --cwd ~", "in sandbox/\nsub/\n"},
		{"also behind an equals sign", "exec 20260128120010-6262 --cwd=in", "--cwd=in sandbox/\n--cwd=sub/\n"},
		{"one level at a time", "exec 20260128120010-6262 --cwd in_sandbox/d", "in sandbox/deep/\n"},
		{"never in one outside", "exec 20260128120010-6262 --cwd ../~", ""},
		{"nor in one that is out of bounds", "exec 20260128120010-6262 --cwd .agency/~", ""},
		{"nor in one of nobody knows which sandbox", "exec --cwd ~", ""},
		{"and its arguments", "exec 20260128120010-6262 -- make -C ~", "\tfiles\n"},
		{"what has a sandbox can be taken a snapshot of", "snapshot create ~", liveInvocations},
		{"what has ended still has its snapshots", "snapshot ls ~", liveInvocations + doneInvocation + lostInvocation},
		{"a snapshot goes by its invocation and number", "snapshot verify ~", snapshotCandidates},
		{"a sandbox can begin as one", "start --from-snapshot ~", snapshotCandidates},
		{"it is copied into a directory", "snapshot checkout 20260128120010-6262/1 ~", "\tdirectories\n"},
		{"what has ended still has its base and its snapshots", "diff ~", liveInvocations + doneInvocation + lostInvocation},
		{"states that can be compared", "diff --from ~", "base\nhead\nwork\nintegration\n" + snapshotCandidates},
		{"behind two dashes stand paths of the sandbox", "diff 20260128120010-6262 -- ~", "in sandbox/\nsub/\n"},
		{"ports are those of a sandbox", "ports ~", liveInvocations},
		{"and numbers", "ports 20260128120010-6262 3000 ~", ""},
		{"what has ended still tells what was refused", "denials ~", liveInvocations + doneInvocation + lostInvocation},
		{"files go where there is a sandbox", "put ~", liveInvocations},
		{"files are put", "put 20260128120010-6262 ~", "\tfiles\n"},
		{"as many as one likes", "put 20260128120010-6262 a b ~", "\tfiles\n"},
		{"also behind two dashes", "put 20260128120010-6262 -- ~", "\tfiles\n"},
		{"or read from a file", "put 20260128120010-6262 --json ~", "\tfiles\n"},
		{"what can be worked in can be submitted", "submit 20260128120010-6262 ~", "20260128120011-6262\tpayments, active\n"},
		{"what was not submitted cannot be rejected", "reject ~", ""},
		{"what is not discarded yet can be discarded", "discard ~", liveInvocations + lostInvocation},
		{"several can be discarded", "discard 20260128120013-6262 --json ~", liveInvocations},
		{"but each only once", "discard 20260128120013-6262 20260128120010-6262 ~", "20260128120011-6262\tpayments, active\n"},

		{"modes", "start --mode ~", "headed\nheadless\n"},
		{"modes behind an equals sign", "start --mode=h", "--mode=headed\n--mode=headless\n"},
		{"one dash will do", "start -mode ~", "headed\nheadless\n"},
		{"changesets that can be built", "start --changeset ~", "worktree\n"},
		{"platforms that can be built", "start --platform ~", "local\n"},
		{"isolation that can be built", "start --isolation ~", "os\nnone\n"},
		{"outputs that can be built", "start --outputs ~", "open\nnone\n"},
		{"software that can be built", "start --software=~", "--software=host\n"},
		{"profiles that can be used", "start wt --profile ~", "$(touch pwned)\na:b\nmy profile\n"},
		{"profiles behind an equals sign", "start --profile=~", "--profile=$(touch pwned)\n--profile=a:b\n--profile=my profile\n"},
		{"free text has no candidates", "start --name ~", ""},
		{"a boolean flag has no value", "ls --all=~", ""},
		{"an unknown flag has no value", "ls --bogus=~", ""},

		{"shells", "completion ~", "bash\nzsh\nfish\n"},
		{"commands of a group", "worktree s", "create\tcreate an integration worktree and print its path\nadopt\tmake an existing worktree an integration worktree and print its id\nls\tlist integration worktrees\nshow\tshow one integration worktree\npath\tprint the path of an integration worktree\nrm\tarchive an integration worktree\n"},
		{"help knows commands of groups", "help worktree ~", "create\tcreate an integration worktree and print its path\nadopt\tmake an existing worktree an integration worktree and print its id\nls\tlist integration worktrees\nshow\tshow one integration worktree\npath\tprint the path of an integration worktree\nrm\tarchive an integration worktree\n"},
		{"help of a plain command has no more", "help start ~", ""},
		{"help of what is no command has no more", "help bogus ~", ""},

		{"the shell knows directories", "worktree adopt ~", "\tdirectories\n"},
		{"the shell knows directories, behind -- too", "worktree adopt -- ~", "\tdirectories\n"},
		{"git knows commits", "worktree create n --from ~", "\tcommits\n"},
		{"git knows commits, behind an equals sign too", "worktree create n --from=x", "\tcommits\n"},

		{"a flag that was given is not offered again", "path --json -", colorLines + "--help\tshow help\n"},
		{"a flag that was given in short is not offered again", "worktree ls -a --porcelain -", "--json\tprint JSON\n-z\twith --porcelain, end lines with NUL instead of newline\n" + colorLines + "--help\tshow help\n"},
		{"of all flags, a group has the program's", "worktree -", colorLines + "--help\tshow help\n"},
		{"the program's flags", "-", colorLines + "--help\tshow help\n--version\tprint the version and exit\n"},

		{"behind -- nothing is offered", "start -- ~", ""},
		{"behind -- no flag is offered", "start wt -- -", ""},
		{"-- is no value", "start --mode -- ~", ""},
		{"what is no command has no arguments", "bogus ~", ""},
		{"what is no command has no flags", "worktree bogus -", ""},
		{"a command without arguments has none", "ls ~", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			words := strings.Split(strings.ReplaceAll(tt.line, "~", ""), " ")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "_", " ")
			}
			if o := l.ask(words...); o != (outcome{0, tt.want, ""}) {
				t.Errorf("%q:\n got %+v\nwant %q", words, o, tt.want)
			}
		})
	}
}

func TestCompletionOffersVariablesByNameOnly(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, repo: t.TempDir()}
	o := l.ask("exec", "--env", "")
	if !strings.Contains("\n"+o.stdout, "\nPATH\n") || strings.Contains(o.stdout, "=") {
		t.Errorf("%+v", o)
	}
	if o := l.ask("exec", "--env", "A=1", "--json", "-"); !strings.Contains(o.stdout, "--env\t") || strings.Contains(o.stdout, "--json\t") {
		t.Errorf("a second one: %+v", o)
	}
}

func TestCompletionOffersEveryCommandAndEveryFlag(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, repo: t.TempDir()} // no repository is needed for that
	tool := newTool(io.Discard, io.Discard, gitagency.Options{})
	for _, line := range [][]string{{""}, {"help", ""}} {
		want := ""
		for _, c := range tool.newApp().Commands {
			want += c.Name + "\t" + c.Usage + "\n"
		}
		if o := l.ask(line...); o != (outcome{0, want, ""}) {
			t.Errorf("%q:\n got %+v\nwant %q", line, o, want)
		}
	}
	for name, c := range leaves("", tool.newApp().Commands) {
		o := l.ask(append(strings.Fields(name), "--")...)
		for _, f := range slices.Concat(c.Flags, tool.newApp().Flags) {
			offered := strings.Contains("\n"+o.stdout, "\n"+withDashes(f.Names()[0])+"\t")
			if visible := f.(cli.VisibleFlag).IsVisible() && f.Names()[0] != "version"; offered != visible {
				t.Errorf("%s: --%s is offered: %v", name, f.Names()[0], offered)
			}
		}
		if strings.Contains(o.stdout, "`") {
			t.Errorf("%s: %s", name, o.stdout)
		}
	}
}

// colorLines are two flags of the program's own, as every command offers them.
const colorLines = "--color\tcolour: --color=always (or --color alone), auto or never\n--no-color\tno colour; the same as --color=never\n"

// Commands and flags that are yet to come, or that other commands have.
func TestCompletionFollowsItsTable(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	tool := newTool(io.Discard, io.Discard, gitagency.Options{Dir: l.repo, Env: l.env})
	app := tool.newApp()
	app.Flags = append(app.Flags, &cli.BoolFlag{Name: "secret", Hidden: true})
	app.Commands = append(app.Commands,
		&cli.Command{Name: "secret", Hidden: true},
		&cli.Command{Name: "clinic", Flags: []cli.Flag{
			&cli.StringFlag{Name: "fix"},
			&cli.StringFlag{Name: "prefix"},
			&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}},
		}})
	tests := []struct{ name, line, want string }{
		{"what is broken can be repaired", "clinic --fix ~", "20260128120013-6262\tinvocation, lost, broken: missing-tree\n" + badWorktree},
		{"the shell knows directories", "clinic --prefix=~", "\tdirectories\n"},
		{"a flag of the program can stand anywhere", "clinic --color=~", "--color=always\n--color=auto\n--color=never\n"},
		{"a value that is optional is no next word", "clinic --color ~", ""},
		{"a flag may be given twice", "clinic --prefix=x --fix y -e A --", "--env\n" + colorLines + "--help\tshow help\n"},
		{"what is hidden stays so", "sec", commandLines(tool.newApp().Commands) + "clinic\n"},
		{"also as a flag", "clinic --prefix=x --fix y --sec", "--env\n" + colorLines + "--help\tshow help\n"},
	}
	for _, tt := range tests {
		words := strings.Split(strings.ReplaceAll(tt.line, "~", ""), " ")
		got := ""
		for _, c := range tool.completionCandidates(t.Context(), app, words) {
			line, _ := c.line()
			got += line
		}
		if got != tt.want {
			t.Errorf("%s: %q:\n got %q\nwant %q", tt.name, tt.line, got, tt.want)
		}
	}
}

func commandLines(commands []*cli.Command) string {
	lines := ""
	for _, c := range commands {
		lines += c.Name + "\t" + c.Usage + "\n"
	}
	return lines
}

func TestNoCandidateCanBreakTheListOrSteerTheTerminal(t *testing.T) {
	t.Parallel()
	tests := []struct {
		candidate candidate
		want      string
		ok        bool
	}{
		{candidate{"a b", ""}, "a b\n", true},
		{candidate{"a:b", "c"}, "a:b\tc\n", true},
		{candidate{"a", "two\nlines\tand a tab"}, "a\ttwo lines and a tab\n", true},
		{candidate{"a", "\x1b[31mred\u202e"}, "a\t" + `\x1b[31mred\u202e` + "\n", true},
		{candidate{"", "files"}, "\tfiles\n", true},
		{candidate{"two\nlines", ""}, "", false},
		{candidate{"a\ttab", ""}, "", false},
		{candidate{"\x1b[31m", ""}, "", false},
		{candidate{"\u202e", ""}, "", false},
		{candidate{"\xff", ""}, "", false},
	}
	for _, tt := range tests {
		if got, ok := tt.candidate.line(); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %q, %v", tt.candidate, got, ok)
		}
	}
}

func TestAnOptionIsNeverOfferedAsAnArgument(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	record := filepath.Join(l.repoData(), "worktrees", "20260128120001-6161", "meta.json")
	l.write(record, strings.ReplaceAll(l.read(record), `"payments"`, `"--force"`))
	l.git("config", "agency.--force.isolation", "none")
	for _, line := range [][]string{{"worktree", "rm", ""}, {"start", "--profile", ""}} {
		if o := l.ask(line...); o.stdout == "" || strings.Contains("\n"+o.stdout, "\n-") {
			t.Errorf("%q: %q", line, o.stdout)
		}
	}
}

func TestCompletionThatCannotFindOutOffersNothingAndSaysNothing(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	silence := outcome{0, "", ""}
	outside := *l
	outside.repo = t.TempDir()
	outside.env = append(slices.Clone(l.env), "GIT_CEILING_DIRECTORIES="+filepath.Dir(outside.repo))
	if o := outside.ask("show", ""); o != silence {
		t.Errorf("outside of a repository: %+v", o)
	}
	misled := *l
	misled.env = append(slices.Clone(l.env), "AGENCY_DATA_DIR=relative")
	if o := misled.ask("show", ""); o != silence {
		t.Errorf("with a data directory that cannot be: %+v", o)
	}
	for _, args := range [][]string{
		{"__complete"},
		{"__complete", "--"},
		{"__complete", "start", "wt"},
		{"__complete", "start", "--", "wt"},
		{"__complete", "-h"},
	} {
		if o := l.inside(gitagency.Options{}, args...); o != silence {
			t.Errorf("%q: %+v", args, o)
		}
	}
	gone := newTool(failingWriter{}, io.Discard, gitagency.Options{})
	if code := gone.runCommandLine(t.Context(), []string{"git-agency", "__complete", "--", ""}); code != 0 {
		t.Errorf("when nobody reads the answer: %d", code)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// succeeding has for every command arguments with which it succeeds, in a lab with an integration
// worktree wt and the invocation sweepID; $LAB is its directory.
var succeeding = map[string][]string{
	"worktree create":   {"fresh"},
	"worktree adopt":    {"--name", "adopted"},
	"worktree ls":       {},
	"worktree show":     {"wt"},
	"worktree path":     {"wt"},
	"worktree rm":       {"wt", "--force"},
	"start":             {"wt"},
	"ls":                {},
	"show":              {sweepID},
	"path":              {sweepID},
	"exec":              {sweepID, "--", "true"},
	"ports":             {sweepID, "3000"}, // while a command runs there
	"denials":           {sweepID},
	"put":               {sweepID, "$LAB/repo/readme", "copy"},
	"snapshot create":   {sweepID},
	"snapshot ls":       {sweepID},
	"snapshot verify":   {sweepID + "/1"},
	"snapshot checkout": {sweepID + "/1", "$LAB/home/copy"},
	"diff":              {sweepID},
	"radar":             {"wt"},
	"snapshot rollback": {sweepID, sweepID + "/1"},
	"submit":            {sweepID, "-m", "done"},
	"reject":            {sweepID, "-m", "why"},
	"sync":              {sweepID},
	"land":              {sweepID, "--commit-all", "-m", "all"},
	"unland":            {sweepID}, // if it has landed
	"discard":           {sweepID},
	"doctor":            {},
	"prune":             {"--expire", "now"},
	"config":            {},
	"setup":             {"--prefix", "$LAB/home/prefix"},
	"completion":        {"bash"},
	"help":              {"start"},
	"version":           {},
}

// TAB asks with our own protocol, or with that of the scripts urfave comes with, which anybody may have.
// Wherever the cursor stands in a command line that would succeed, nothing may run, not even begin,
// and nothing may change or take the lock.
func TestPressingTABNeverRunsAnything(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	if o := l.try(sweepEnv, "git-agency", "start", "wt"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	l.agency("snapshot", "create", sweepID)
	tree := l.agency("path", sweepID)
	l.write(filepath.Join(tree, "work"), "done\n")
	l.git("-C", tree, "add", "work")
	l.git("-C", tree, "commit", "-q", "-m", "work")
	l.agency("submit", sweepID)
	l.git("config", "agency.autoDetach", "false") // who tidies up later would change the world then

	var mu sync.Mutex
	var steps []string
	opts := func(args []string) gitagency.Options {
		return gitagency.Options{Fault: func(_ context.Context, point string) error {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, fmt.Sprintf("%q reached %s", args, point))
			return nil
		}}
	}

	before, restore, changing := l.world(), l.save(), 0
	asked := map[string][]string{}
	for name, c := range leaves("", newTool(io.Discard, io.Discard, gitagency.Options{}).commands()) {
		words := strings.Fields(name)
		args, ok := succeeding[strings.Join(words, " ")]
		args = slices.Clone(args)
		if !ok {
			t.Errorf("say in succeeding how%s succeeds", name)
			continue
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$LAB", l.dir)
		}
		o := l.inside(opts(words), slices.Concat(words, args)...)
		// One waits for a command, and then for its end; the other finds no landing, as what has landed is restored.
		if fails := words[0] == "ports" || words[0] == "unland"; o.code != 0 && (o.code != 1 || !fails) {
			t.Errorf("%q %q: %+v", words, args, o)
		}
		if diff(before, l.world()) != "" {
			changing++
			restore()
		}
		for _, question := range questions(words, args, c.Flags) {
			asked[strings.Join(question, "\x00")] = question
		}
	}
	if changing < 5 || len(steps) < 5 {
		t.Errorf("only %d commands changed anything, in %q; this test proves too little", changing, steps)
	}

	steps = nil
	locked := l.lockState()
	limit, all := make(chan bool, 4), sync.WaitGroup{}
	for _, question := range asked {
		limit <- true
		all.Go(func() {
			defer func() { <-limit }()
			if o := l.inside(opts(question), question...); o.code != 0 || o.stderr != "" {
				t.Errorf("%q: ended with %d: %s", question, o.code, o.stderr)
			}
		})
	}
	all.Wait()
	t.Logf("%d questions", len(asked))
	for _, s := range steps {
		t.Error(s)
	}
	if d := diff(before, l.world()); d != "" {
		t.Errorf("the world changed:\n%s", d)
	}
	if now := l.lockState(); now != locked {
		t.Errorf("the lock was taken: it was %s, and is %s", locked, now)
	}
}

// questions are those that shells may ask about a command line, wherever its flags stand and the cursor is.
func questions(words, args []string, flags []cli.Flag) [][]string {
	var given []string
	for _, f := range flags {
		switch name := f.Names()[0]; name {
		case "json":
			given = append(given, "--json")
		case lockTimeoutFlag:
			given = append(given, "--lock-timeout", "0")
		}
	}
	var found [][]string
	for _, line := range [][]string{
		slices.Concat(words, given, args),
		slices.Concat(words, args, given),
		slices.Concat(words, []string{"--"}, args),
		slices.Concat(words, args, []string{"--", "more"}),
	} {
		for at := range len(line) + 1 {
			front := slices.Clone(line[:at])
			// At a new word, in the word that stands there, at a flag, and at what may become --.
			currents := []string{"", "-", "--"}
			if at < len(line) {
				currents = append(currents, line[at], line[at][:1])
			}
			const urfave = "--generate-bash-completion"
			found = append(found, append(front, urfave))
			for _, current := range currents {
				found = append(found,
					slices.Concat([]string{"__complete", "--"}, front, []string{current}),
					slices.Concat(front, []string{current, urfave}))
			}
		}
	}
	return found
}

func TestPressingTABWaitsForNobody(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	f, err := os.Open(l.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	want := outcome{0, liveInvocations + lostInvocation, ""}
	if o := l.ask("discard", "--lock-timeout", "-1", ""); o != want {
		t.Errorf("got %+v\nwant %+v", o, want)
	}
}

func (l *lab) lockFile() string { return filepath.Join(l.repo, ".git", "agency", "lock.flock") }

// lockState changes whenever somebody takes the lock, since its file says who had it last.
func (l *lab) lockState() string {
	l.t.Helper()
	info, err := os.Stat(l.lockFile())
	if err != nil {
		l.t.Fatal(err)
	}
	return info.ModTime().String() + " " + l.read(l.lockFile())
}
