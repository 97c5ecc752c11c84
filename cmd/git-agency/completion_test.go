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

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func TestCompletionListersCoverCommandsAndFlags(t *testing.T) {
	t.Parallel()
	app := newTool(io.Discard, io.Discard, gitagency.Options{}).NewApp()
	check := func(command string, flags []cli.Flag) {
		for _, f := range flags {
			doc, ok := f.(cli.DocGenerationFlag)
			if !ok || !doc.TakesValue() {
				continue
			}
			if !complete.CoversFlag(command, f) {
				t.Errorf("flagListers has no entry for --%s of %q", f.Names()[0], command)
			}
		}
	}
	check("", app.Flags)
	// A usage line without its flags has only the arguments.
	flag := regexp.MustCompile(`\[?--?[a-z-]+(=| )?(<[^>]*>)?\]?`)
	for name, c := range leafCommands("", app.Commands) {
		if c.Hidden {
			continue
		}
		name = strings.TrimPrefix(name, " ")
		check(name, c.Flags)
		ok, hasArguments := complete.CoversCommand(name)
		if !ok {
			t.Errorf("argumentListers has no entry for %q", name)
		}
		if strings.Contains(flag.ReplaceAllString(c.UsageText, ""), "<") && !hasArguments {
			t.Errorf("argumentListers lists no arguments for %q, but its usage is %q", name, c.UsageText)
		}
	}
}

// newCompletionLab returns a lab with worktrees, invocations, snapshots and profiles in each of the states
// that completion distinguishes.
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
		mkdirAll(t, filepath.Join(l.repoData(), "sandboxes", "20260128120010-6262", "tree", dir))
	}
	l.git("config", "agency.my profile.changeset", "worktree")
	l.git("config", "agency.a:b.isolation", "none")
	l.git("config", "agency.$(touch pwned).isolation", "none")
	l.git("config", "agency.misspelt.isolatoin", "none")
	l.git("config", "agency.claude.command", "claude --yes")
	return l
}

// hostileName is a name with shell syntax that every shell must treat as plain text.
const hostileName = "$(touch pwned) 'x' \"y\" a:b `touch pwned` %F{red} \\"

// Candidates for the contents of newCompletionLab, as the tool prints them.
const (
	liveCandidates = "20260128120010-6262\t" + hostileName + ", wt, idle\n" +
		"20260128120011-6262\tpayments, idle\n"
	discardedCandidate = "20260128120012-6262\tdone, payments, discarded\n"
	brokenCandidate    = "20260128120013-6262\tlost, wt, broken: missing-tree\n"

	snapshotCandidates = "20260128120010-6262/1\t" + hostileName + ", agency: snapshot 1 of sandbox 20260128120010-6262, now\n" +
		"20260128120012-6262/1\tdone, one, now\n"

	worktreeNameCandidates = "wt\tagency/wt-6161\npayments\tagency/payments-6161\n"
	worktreeIDCandidates   = "20260128120000-6161\twt\n20260128120001-6161\tpayments\n"
	brokenWorktreeLine     = "20260128120003-6161\tworktree, bad, broken: missing-tree\n"
)

// runInProcess runs the tool in this process, in the lab's repository.
func (l *lab) runInProcess(opts gitagency.Options, args ...string) outcome {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	opts.Dir, opts.Env = l.repo, l.env
	code := newTool(&stdout, &stderr, opts).RunCommandLine(l.t.Context(), append([]string{"git-agency"}, args...))
	return outcome{code, stdout.String(), stderr.String()}
}

// complete asks the tool for the candidates of the last word.
func (l *lab) complete(words ...string) outcome {
	l.t.Helper()
	past := func() time.Time { return time.Time{} } // earlier than all snapshots, so that each has the age "now"
	return l.runInProcess(gitagency.Options{Now: past}, append([]string{"__complete", "--"}, words...)...)
}

func TestCompletionCandidates(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	tests := []struct {
		name, line string // the cursor is in the last word; ~ stands for an empty word
		want       string
	}{
		{"start takes present worktrees by name and by id", "start ~", worktreeNameCandidates + worktreeIDCandidates},
		{"candidates are not filtered by prefix", "start pay", worktreeNameCandidates + worktreeIDCandidates},
		{"worktree show takes broken worktrees", "worktree show ~", worktreeNameCandidates + worktreeIDCandidates + brokenWorktreeLine},
		{"worktree path takes broken worktrees", "worktree path ~", worktreeNameCandidates + worktreeIDCandidates + brokenWorktreeLine},
		{"worktree rm takes broken worktrees", "worktree rm ~", worktreeNameCandidates + worktreeIDCandidates + brokenWorktreeLine},
		{"a flag takes worktrees", "ls --worktree ~", worktreeNameCandidates + worktreeIDCandidates},
		{"start takes one worktree only", "start wt ~", ""},
		{"flags do not count as arguments", "start --json --name x ~", worktreeNameCandidates + worktreeIDCandidates},

		{"show takes every invocation", "show ~", liveCandidates + discardedCandidate + brokenCandidate},
		{"path takes every invocation", "path ~", liveCandidates + discardedCandidate + brokenCandidate},
		{"a command alias has the flags of its command", "worktree list --all", "--all\talso those that are archived or broken\n--json\tprint JSON\n--porcelain\tprint blocks of 'key value' lines for scripts\n-z\twith --porcelain, end lines with NUL instead of newline\n" + colorFlagCandidates + "--help\tshow help\n"},
		{"exec takes invocations with a sandbox", "exec ~", liveCandidates},
		{"exec takes a command behind --", "exec 20260128120010-6262 -- ~", "\tcommands\n"},
		{"--cwd takes directories of the sandbox", "exec 20260128120010-6262 --cwd ~", "in sandbox/\nsub/\n"},
		{"--cwd= takes directories of the sandbox", "exec 20260128120010-6262 --cwd=in", "--cwd=in sandbox/\n--cwd=sub/\n"},
		{"--cwd lists one level at a time", "exec 20260128120010-6262 --cwd in_sandbox/d", "in sandbox/deep/\n"},
		{"--cwd does not list directories outside", "exec 20260128120010-6262 --cwd ../~", ""},
		{"--cwd does not list .agency", "exec 20260128120010-6262 --cwd .agency/~", ""},
		{"--cwd without an id lists nothing", "exec --cwd ~", ""},
		{"exec takes files as arguments of the command", "exec 20260128120010-6262 -- make -C ~", "\tfiles\n"},
		{"snapshot create takes invocations with a sandbox", "snapshot create ~", liveCandidates},
		{"snapshot ls takes every invocation", "snapshot ls ~", liveCandidates + discardedCandidate + brokenCandidate},
		{"snapshot verify takes snapshots by id and number", "snapshot verify ~", snapshotCandidates},
		{"start --from-snapshot takes snapshots", "start --from-snapshot ~", snapshotCandidates},
		{"snapshot checkout takes a directory", "snapshot checkout 20260128120010-6262/1 ~", "\tdirectories\n"},
		{"diff takes every invocation", "diff ~", liveCandidates + discardedCandidate + brokenCandidate},
		{"diff --from takes states and snapshots", "diff --from ~", "base\nhead\nwork\nintegration\n" + snapshotCandidates},
		{"diff takes paths of the sandbox behind --", "diff 20260128120010-6262 -- ~", "in sandbox/\nsub/\n"},
		{"ports takes invocations with a sandbox", "ports ~", liveCandidates},
		{"ports lists no port numbers", "ports 20260128120010-6262 3000 ~", ""},
		{"denials takes every invocation", "denials ~", liveCandidates + discardedCandidate + brokenCandidate},
		{"put takes invocations with a sandbox", "put ~", liveCandidates},
		{"put takes a file", "put 20260128120010-6262 ~", "\tfiles\n"},
		{"put takes several files", "put 20260128120010-6262 a b ~", "\tfiles\n"},
		{"put takes files behind --", "put 20260128120010-6262 -- ~", "\tfiles\n"},
		{"put --json takes a file", "put 20260128120010-6262 --json ~", "\tfiles\n"},
		{"submit takes active invocations", "submit 20260128120010-6262 ~", "20260128120011-6262\tpayments, idle\n"},
		{"reject takes submitted invocations only", "reject ~", ""},
		{"discard takes invocations not yet discarded", "discard ~", liveCandidates + brokenCandidate},
		{"discard takes several invocations", "discard 20260128120013-6262 --json ~", liveCandidates},
		{"discard offers no invocation twice", "discard 20260128120013-6262 20260128120010-6262 ~", "20260128120011-6262\tpayments, idle\n"},

		{"modes", "start --mode ~", "headed\nheadless\n"},
		{"modes behind an equals sign", "start --mode=h", "--mode=headed\n--mode=headless\n"},
		{"a long flag may have one dash", "start -mode ~", "headed\nheadless\n"},
		{"supported changesets", "start --changeset ~", "worktree\nclone\noverlay\nauto\n"},
		{"supported platforms", "start --platform ~", "local\nslurm\npodman\n"},
		{"supported isolation", "start --isolation ~", "os\nnone\n"},
		{"supported outputs", "start --outputs ~", "open\nnone\n"},
		{"supported software", "start --software=~", "--software=host\n\tdirectories\n"},
		{"usable profiles", "start wt --profile ~", "$(touch pwned)\na:b\nmy profile\n"},
		{"profiles behind an equals sign", "start --profile=~", "--profile=$(touch pwned)\n--profile=a:b\n--profile=my profile\n"},
		{"free text has no candidates", "start --name ~", ""},
		{"a boolean flag has no value", "ls --all=~", ""},
		{"an unknown flag has no value", "ls --bogus=~", ""},

		{"shells", "completion ~", "bash\nzsh\nfish\n"},
		{"commands of a group", "worktree s", "create\tcreate an integration worktree and print its path\nadopt\tmake an existing worktree an integration worktree and print its id\nfinish\tmerge an integration worktree into its parent branch and archive it\nls\tlist integration worktrees\nshow\tshow one integration worktree\npath\tprint the path of an integration worktree\nrm\tarchive an integration worktree\n"},
		{"help takes subcommands of a group", "help worktree ~", "create\tcreate an integration worktree and print its path\nadopt\tmake an existing worktree an integration worktree and print its id\nfinish\tmerge an integration worktree into its parent branch and archive it\nls\tlist integration worktrees\nshow\tshow one integration worktree\npath\tprint the path of an integration worktree\nrm\tarchive an integration worktree\n"},
		{"help takes nothing behind a leaf command", "help start ~", ""},
		{"help takes nothing behind an unknown command", "help bogus ~", ""},
		{"help takes nothing behind a section", "help SECURITY ~", ""},

		{"directories are left to the shell", "worktree adopt ~", "\tdirectories\n"},
		{"directories behind -- are left to the shell", "worktree adopt -- ~", "\tdirectories\n"},
		{"commits are left to git", "worktree create n --from ~", "\tcommits\n"},
		{"commits behind an equals sign are left to git", "worktree create n --from=x", "\tcommits\n"},

		{"a given flag is not offered again", "path --json -", colorFlagCandidates + "--help\tshow help\n"},
		{"a flag given by its alias is not offered again", "worktree ls -a --porcelain -", "--json\tprint JSON\n-z\twith --porcelain, end lines with NUL instead of newline\n" + colorFlagCandidates + "--help\tshow help\n"},
		{"a group has only the program's flags", "worktree -", colorFlagCandidates + "--help\tshow help\n"},
		{"the program's flags", "-", colorFlagCandidates + "--help\tshow help\n--version\tprint the version and exit\n"},

		{"start takes no argument behind --", "start -- ~", ""},
		{"no flag is offered behind --", "start wt -- -", ""},
		{"-- is no flag value", "start --mode -- ~", ""},
		{"an unknown command has no arguments", "bogus ~", ""},
		{"an unknown subcommand has no flags", "worktree bogus -", ""},
		{"a command without arguments has none", "ls ~", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			words := strings.Split(strings.ReplaceAll(tt.line, "~", ""), " ")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "_", " ")
			}
			if o := l.complete(words...); o != (outcome{0, tt.want, ""}) {
				t.Errorf("%q:\n got %+v\nwant %q", words, o, tt.want)
			}
		})
	}
}

// newNamedInvocationsLab returns a shell lab with three more invocations, whose names begin alike and whose ids end differently.
func newNamedInvocationsLab(t *testing.T) *lab {
	t.Helper()
	l := newShellLab(t)
	for i, name := range []string{"refactor", "refunds", "refunds-2"} {
		env := []string{fmt.Sprintf("TEST_NOW=2026-01-28T12:00:%dZ", 30+i), "TEST_RAND=" + string(rune('c'+i))}
		if o := l.try(env, "git-agency", "start", "payments", "--name", name); o.code != 0 {
			t.Fatal(o.stderr)
		}
	}
	return l
}

func TestCompletionReplacesNamesByIDs(t *testing.T) {
	t.Parallel()
	l := newNamedInvocationsLab(t)
	const (
		replace  = "\treplace\n"
		refactor = "20260128120030-6363\trefactor, payments, idle\n"
		refunds  = "20260128120031-6464\trefunds, payments, idle\n"
		refunds2 = "20260128120032-6565\trefunds-2, payments, idle\n"
	)
	all := liveCandidates + discardedCandidate + brokenCandidate + refactor + refunds + refunds2
	tests := []struct{ name, line, want string }{
		{"a name", "show done", replace + discardedCandidate},
		{"the beginning of a name", "show refa", replace + refactor},
		{"the beginning of several names", "show ref", replace + refactor + refunds + refunds2},
		{"a name that another one begins with", "show refunds", replace + refunds},
		{"a name in the middle of the line", "land 20260128120031-6464 refa", replace + refactor},
		{"a name behind --", "exec -- refa", replace + refactor},
		{"the name of a broken invocation", "doctor --fix lo", replace + "20260128120013-6262\tinvocation, lost, broken: missing-tree\n"},
		{"a name behind an equals sign", "doctor --fix=lo", replace + "--fix=20260128120013-6262\tinvocation, lost, broken: missing-tree\n"},
		{"the name of an invocation with snapshots", "snapshot verify done", replace + "20260128120012-6262/1\tdone, one, now\n"},
		{"the end of an id", "show 6464", replace + refunds},
		{"the beginning of the end of an id", "show 64", replace + refunds},
		{"the end of several ids", "show 6262", replace + liveCandidates + discardedCandidate + brokenCandidate},
		{"the end of the id of a snapshot", "snapshot checkout 6262/", replace + snapshotCandidates},
		{"a state to compare and the name of an invocation", "diff @ --to wor", "base\nhead\nwork\nintegration\n"},
		{"the name of an invocation in place of a state", "diff @ --to done", "base\nhead\nwork\nintegration\n" + replace + "20260128120012-6262/1\tdone, one, now\n"},
		{"a name of an invocation that the command does not take", "discard done", ""},
		{"a name of no invocation", "show nothing", ""},
		{"a part of a name other than its beginning", "show funds", ""},
		{"the beginning of an id", "show 2026", all},
		{"an id that is on the line by its end", "discard 6363 64 refunds", replace + refunds2},
		{"an id that is on the line as @", "discard @ @-1 ~", liveCandidates + brokenCandidate + refactor},
		{"the newest invocations", "show @", "@\trefunds-2, payments, idle\n@-1\trefunds, payments, idle\n@-2\trefactor, payments, idle\n" +
			"@-3\tpayments, idle\n@-4\t" + hostileName + ", wt, idle\n"},
		{"the newest invocations that are not on the line", "land @ 6464 @-", "@-2\trefactor, payments, idle\n@-3\tpayments, idle\n@-4\t" + hostileName + ", wt, idle\n"},
		{"no invocation that the command does not take", "restore @", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if o := l.complete(strings.Split(strings.ReplaceAll(tt.line, "~", ""), " ")...); o != (outcome{0, tt.want, ""}) {
				t.Errorf("%q:\n got %+v\nwant %q", tt.line, o, tt.want)
			}
		})
	}
}

func TestCompletionOffersVariableNamesOnly(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, repo: t.TempDir()}
	o := l.complete("exec", "--env", "")
	if !strings.Contains("\n"+o.stdout, "\nPATH\n") || strings.Contains(o.stdout, "=") {
		t.Errorf("%+v", o)
	}
	if o := l.complete("exec", "--env", "A=1", "--json", "-"); !strings.Contains(o.stdout, "--env\t") || strings.Contains(o.stdout, "--json\t") {
		t.Errorf("a repeated --env: %+v", o)
	}
}

func TestCompletionOffersAllCommandsAndFlags(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, repo: t.TempDir()} // commands and flags need no repository
	tool := newTool(io.Discard, io.Discard, gitagency.Options{})
	commands, sections := formatCommandCandidates(tool.NewApp().Commands), ""
	for _, s := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "OUTPUT", "CONFIGURATION", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "INSIDE", "CHANGESETS", "PLATFORMS", "PLAIN DIRECTORIES", "LIMITS", "SECURITY", "TROUBLE", "SEE ALSO"} {
		sections += s + "\tsection of the manual\n"
	}
	for line, want := range map[string]string{
		"":         commands,
		"help ":    commands + sections,
		"help SEC": commands + sections,
		"help sec": commands + strings.ToLower(sections),
	} {
		if o := l.complete(strings.Split(line, " ")...); o != (outcome{0, want, ""}) {
			t.Errorf("%q:\n got %+v\nwant %q", line, o, want)
		}
	}
	for name, c := range leafCommands("", tool.NewApp().Commands) {
		o := l.complete(append(strings.Fields(name), "--")...)
		for _, f := range slices.Concat(c.Flags, tool.NewApp().Flags) {
			offered := strings.Contains("\n"+o.stdout, "\n"+argv.WithDashes(f.Names()[0])+"\t")
			if visible := f.(cli.VisibleFlag).IsVisible() && f.Names()[0] != "version"; offered != visible {
				t.Errorf("%s: --%s is offered: %v, want %v", name, f.Names()[0], offered, visible)
			}
		}
		if strings.Contains(o.stdout, "`") {
			t.Errorf("%s: %s", name, o.stdout)
		}
	}
}

// colorFlagCandidates are the candidates of two flags of the program, which every command offers.
const colorFlagCandidates = "--color\tcolour: --color=always (or --color alone), auto or never\n--no-color\tno colour; the same as --color=never\n"

// TestCompletionOfAddedCommands completes commands and flags that only the test adds: hidden ones, and a
// command whose flags are listed in flagListers.
func TestCompletionOfAddedCommands(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	tool := newTool(io.Discard, io.Discard, gitagency.Options{Dir: l.repo, Env: l.env})
	app := tool.NewApp()
	app.Flags = append(app.Flags, &cli.BoolFlag{Name: "secret", Hidden: true})
	app.Commands = append(app.Commands,
		&cli.Command{Name: "secret", Hidden: true},
		&cli.Command{Name: "clinic", Flags: []cli.Flag{
			&cli.StringFlag{Name: "fix"},
			&cli.StringFlag{Name: "prefix"},
			&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}},
		}})
	tests := []struct{ name, line, want string }{
		{"--fix takes broken records", "clinic --fix ~", "20260128120013-6262\tinvocation, lost, broken: missing-tree\n" + brokenWorktreeLine},
		{"directories are left to the shell", "clinic --prefix=~", "\tdirectories\n"},
		{"a command takes the program's flags", "clinic --color=~", "--color=always\n--color=auto\n--color=never\n"},
		{"an optional value is no next word", "clinic --color ~", ""},
		{"a repeatable flag is offered again", "clinic --prefix=x --fix y -e A --", "--env\n" + colorFlagCandidates + "--help\tshow help\n"},
		{"hidden commands are not offered", "sec", formatCommandCandidates(tool.NewApp().Commands) + "clinic\n"},
		{"hidden flags are not offered", "clinic --prefix=x --fix y --sec", "--env\n" + colorFlagCandidates + "--help\tshow help\n"},
	}
	for _, tt := range tests {
		words := strings.Split(strings.ReplaceAll(tt.line, "~", ""), " ")
		var got bytes.Buffer
		complete.Answer(t.Context(), &got, complete.Request{App: app, Words: append([]string{"--"}, words...), Options: tool.Options})
		if got.String() != tt.want {
			t.Errorf("%s: %q:\n got %q\nwant %q", tt.name, tt.line, got.String(), tt.want)
		}
	}
}

// formatCommandCandidates returns the commands as the tool prints candidates.
func formatCommandCandidates(commands []*cli.Command) string {
	lines := ""
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		lines += c.Name + "\t" + c.Usage + "\n"
	}
	return lines
}

func TestCompletionOffersNoArgumentWithDash(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	record := filepath.Join(l.repoData(), "worktrees", "20260128120001-6161", "meta.json")
	l.write(record, strings.ReplaceAll(l.read(record), `"payments"`, `"--force"`))
	l.git("config", "agency.--force.isolation", "none")
	for _, line := range [][]string{{"worktree", "rm", ""}, {"start", "--profile", ""}} {
		if o := l.complete(line...); o.stdout == "" || strings.Contains("\n"+o.stdout, "\n-") {
			t.Errorf("%q: %q", line, o.stdout)
		}
	}
}

func TestCompletionErrorsAreSilent(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	silent := outcome{0, "", ""}
	outside := *l
	outside.repo = t.TempDir()
	outside.env = append(slices.Clone(l.env), "GIT_CEILING_DIRECTORIES="+filepath.Dir(outside.repo))
	if o := outside.complete("show", ""); o != silent {
		t.Errorf("outside a repository: %+v", o)
	}
	misled := *l
	misled.env = append(slices.Clone(l.env), "AGENCY_DATA_DIR=relative")
	if o := misled.complete("show", ""); o != silent {
		t.Errorf("with an invalid data directory: %+v", o)
	}
	for _, args := range [][]string{
		{"__complete"},
		{"__complete", "--"},
		{"__complete", "start", "wt"},
		{"__complete", "start", "--", "wt"},
		{"__complete", "-h"},
	} {
		if o := l.runInProcess(gitagency.Options{}, args...); o != silent {
			t.Errorf("%q: %+v", args, o)
		}
	}
	gone := newTool(failingWriter{}, io.Discard, gitagency.Options{})
	if code := gone.RunCommandLine(t.Context(), []string{"git-agency", "__complete", "--", ""}); code != 0 {
		t.Errorf("with a closed stdout: exit code %d", code)
	}
}

// failingWriter is a closed pipe.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// successfulArgs has for every command arguments with which it succeeds in a lab with the integration
// worktree wt and the invocation sweepID; $LAB is the lab's directory.
var successfulArgs = map[string][]string{
	"worktree create":   {"fresh"},
	"worktree adopt":    {"--name", "adopted"},
	"worktree ls":       {},
	"worktree show":     {"wt"},
	"worktree path":     {"wt"},
	"worktree finish":   {"wt"}, // fails: it has a sandbox
	"worktree rm":       {"wt", "--force"},
	"start":             {"wt"},
	"run":               {"wt", "--", "true"},
	"attach":            {sweepID}, // fails, and so do the next three: no agent was run
	"logs":              {sweepID},
	"wait":              {sweepID},
	"resume":            {sweepID},
	"stop":              {sweepID},
	"questions":         {},
	"events":            {},
	"preflight":         {"wt"},
	"ls":                {},
	"show":              {sweepID},
	"log":               {sweepID},
	"review":            {sweepID},
	"path":              {sweepID},
	"exec":              {sweepID, "--", "true"},
	"shell":             {sweepID},         // fails: there is no terminal
	"ports":             {sweepID, "3000"}, // fails: no command runs in the sandbox
	"denials":           {sweepID},
	"allow":             {sweepID, "--outputs", "open", "--read", "/usr"},
	"put":               {sweepID, "$LAB/repo/readme", "copy"},
	"snapshot create":   {sweepID},
	"snapshot ls":       {sweepID},
	"snapshot verify":   {sweepID + "/1"},
	"snapshot checkout": {sweepID + "/1", "$LAB/home/copy"},
	"diff":              {sweepID},
	"ask":               {"why"}, // fails: it does not run in a sandbox
	"radar":             {"wt"},
	"snapshot rollback": {sweepID, sweepID + "/1"},
	"submit":            {sweepID, "-m", "done"},
	"reject":            {sweepID, "-m", "why"},
	"sync":              {sweepID},
	"land":              {sweepID, "--commit-all", "-m", "all"},
	"unland":            {sweepID}, // fails: the landing was restored away
	"discard":           {sweepID},
	"restore":           {sweepID}, // fails: the discard was restored away
	"doctor":            {},
	"prune":             {"--expire", "now"},
	"config":            {},
	"setup":             {"--prefix", "$LAB/home/prefix"},
	"completion":        {"bash"},
	"help":              {"start"},
	"version":           {},
}

// TestCompletionRunsNothing sends completion requests in our protocol and in that of urfave's scripts, which
// users may have installed. With the cursor anywhere in a command line that would succeed, the command must
// not start, change a file or take the lock.
func TestCompletionRunsNothing(t *testing.T) {
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
	l.git("config", "agency.autoDetach", "false") // a detached clean-up would change files later

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

	before, restore, changing := l.dump(), l.save(), 0
	asked := map[string][]string{}
	for name, c := range leafCommands("", allCommands()) {
		words := strings.Fields(name)
		args, ok := successfulArgs[strings.Join(words, " ")]
		args = slices.Clone(args)
		if !ok {
			t.Errorf("successfulArgs has no entry for%s", name)
			continue
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$LAB", l.dir)
		}
		o := l.runInProcess(opts(words), slices.Concat(words, args)...)
		// shell has no terminal, ports finds no running command, unland no landing and restore no ended sandbox, because restore undoes each change.
		// finish finds the sandbox, and ask does not run in one.
		if fails := slices.Contains([]string{"ports", "unland", "restore", "finish", "attach", "logs", "wait", "resume", "ask"}, words[len(words)-1]); o.code != 0 && (o.code != 1 || !fails) && (o.code != 129 || words[0] != "shell") {
			t.Errorf("%q %q: %+v", words, args, o)
		}
		if dumpDiff(before, l.dump()) != "" {
			changing++
			restore()
		}
		for _, question := range completionRequests(words, args, c.Flags) {
			asked[strings.Join(question, "\x00")] = question
		}
	}
	if changing < 5 || len(steps) < 5 {
		t.Errorf("only %d commands changed files, at steps %q: too few for this test", changing, steps)
	}

	steps = nil
	locked := l.lockState()
	limit, all := make(chan bool, 4), sync.WaitGroup{}
	for _, question := range asked {
		limit <- true
		all.Go(func() {
			defer func() { <-limit }()
			if o := l.runInProcess(opts(question), question...); o.code != 0 || o.stderr != "" {
				t.Errorf("%q: ended with %d: %s", question, o.code, o.stderr)
			}
		})
	}
	all.Wait()
	t.Logf("%d completion requests", len(asked))
	for _, s := range steps {
		t.Error(s)
	}
	if d := dumpDiff(before, l.dump()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
	if now := l.lockState(); now != locked {
		t.Errorf("the lock was taken: before %s, after %s", locked, now)
	}
}

// completionRequests returns the argument lists with which shells may ask to complete a command line, for
// several positions of its flags and each position of the cursor.
func completionRequests(words, args []string, flags []cli.Flag) [][]string {
	var given []string
	for _, f := range flags {
		switch name := f.Names()[0]; name {
		case "json":
			given = append(given, "--json")
		case program.LockTimeoutFlag:
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
			// The cursor at a new word, in the existing word, at a flag, and at a possible "--".
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

func TestCompletionDoesNotWaitForLock(t *testing.T) {
	t.Parallel()
	l := newCompletionLab(t)
	defer l.takeRepositoryLock()()
	want := outcome{0, liveCandidates + brokenCandidate, ""}
	if o := l.complete("discard", "--lock-timeout", "-1", ""); o != want {
		t.Errorf("got %+v\nwant %+v", o, want)
	}
}

// takeRepositoryLock waits for the repository lock, as another program would, and takes it. The lock is lost when this
// process closes any other descriptor of the file.
func (l *lab) takeRepositoryLock() (release func()) {
	l.t.Helper()
	f, err := os.OpenFile(l.lockFile(), os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, take := range []func() error{
		func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }, // systems other than Linux
		func() error {
			return syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK})
		},
	} {
		for err = syscall.EINTR; err == syscall.EINTR; {
			err = take()
		}
		if err != nil {
			l.t.Fatalf("take the repository lock: %v", err)
		}
	}
	return func() { _ = f.Close() }
}

func (l *lab) lockFile() string { return filepath.Join(l.repo, ".git", "agency", "lock.flock") }

// lockState returns the mtime and content of the lock file, which every holder overwrites with its name.
func (l *lab) lockState() string {
	l.t.Helper()
	info, err := os.Stat(l.lockFile())
	if err != nil {
		l.t.Fatal(err)
	}
	return info.ModTime().String() + " " + l.read(l.lockFile())
}
