package argv

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestReorderArgsMovesFlagsBeforePositionals(t *testing.T) {
	tests := []struct{ name, in, out string }{
		{"an empty line stays empty", "", ""},
		{"a command without arguments is unchanged", "start", "start"},
		{"a flag behind a positional moves in front", "start wt --json", "start --json -- wt"},
		{"a flag in front stays there", "start --json wt", "start --json -- wt"},
		{"a value moves with its flag", "start wt --name x", "start --name x -- wt"},
		{"a value after = takes no next word", "start --name=x wt", "start --name=x -- wt"},
		{"an empty value after = is a value", "start --name= wt", "start --name= -- wt"},
		{"a long flag may have one dash", "start wt -name x", "start -name x -- wt"},
		{"an alias is moved like its flag", "start wt -n x -z", "start -n x -z -- wt"},
		{"a value may be a negative number", "start wt --lock-timeout -1", "start --lock-timeout -1 -- wt"},
		{"a value may look like a flag", "start --name --json wt", "start --name --json -- wt"},
		{"a boolean flag takes no next word", "start --json false", "start --json -- false"},
		{"positionals keep their order", "start a --json b -z c", "start --json -z -- a b c"},
		{"flags keep their order", "start --name a wt --name b", "start --name a --name b -- wt"},
		{"an unknown flag stays a single word", "start wt --bogus x", "start --bogus -- wt x"},
		{"a command's flag in front of it is left to urfave", "--name x start", "--name x start"},
		{"a malformed flag is left to urfave", "start wt ---x --=y", "start ---x --=y -- wt"},
		{"a lone dash is a positional", "start - --json", "start --json -- -"},

		{"an app's flags go to the app", "start wt --quiet --color never", "--quiet --color never start -- wt"},
		{"an app's flags in front stay there", "--color never start wt", "--color never start -- wt"},
		{"an app's value is not a command", "--color start start wt", "--color start start -- wt"},
		{"a command's own flag shadows the app's", "exec id --color x", "exec --color x -- id"},

		{"subcommands are walked", "worktree create n --from HEAD~1", "worktree create --from HEAD~1 -- n"},
		{"aliases of commands are walked", "wt new n --from HEAD~1", "wt new --from HEAD~1 -- n"},
		{"a group's flags go to the group", "worktree create n --all", "worktree --all create -- n"},
		{"an app's flags move out of a group", "worktree --quiet create n", "--quiet worktree create -- n"},
		{"a group without a subcommand is unchanged", "worktree", "worktree"},
		{"a group's unknown word is left to the app", "worktree bogus n --from x -- y", "worktree bogus n --from x -- y"},
		{"an unknown first word is left to the app", "bogus n --quiet -- y", "bogus n --quiet -- y"},
		{"a command that skips flag parsing is left alone", "raw x --quiet -h -- y", "raw x --quiet -h -- y"},

		{"words after -- are positionals", "start a -- --json -- --quiet", "start -- a --json -- --quiet"},
		{"a trailing -- is dropped", "start --json --", "start --json"},
		{"-- before a command is left to urfave", "-- start wt --json", "-- start wt --json"},
		{"a child's arguments are removed", "exec id --json -- cmd --json", "exec --json -- id"},

		{"help drops the positionals", "start wt --json -h", "start --json -h"},
		{"help before a command moves to the command", "--help worktree create n", "worktree create --help"},
		{"help about an unknown word is left to the app", "worktree -h bogus", "worktree -h bogus"},
		{"help without a command is the app's", "-h", "-h"},
		{"-h as a value is no help flag", "start wt --name -h", "start --name -h -- wt"},
		{"-h after -- is no help flag", "start -- -h", "start -- -h"},

		{"a missing value is left missing", "start wt --lock-timeout", "start --lock-timeout"},
		{"an app's missing value is left missing", "start wt --color", "--color"},
		{"-- is no value", "start wt --name -- x", "start --name"},

		{"a completion request is left alone", "start wt --json --generate-bash-completion", "start wt --json --generate-bash-completion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := toyArgs(tt.in)
			before := slices.Clone(args)
			out, _, _ := Reorder(toyApp(nil), args, toyKeepsChildArgs)
			if want := toyArgs(tt.out); !slices.Equal(out, want) {
				t.Errorf("Reorder(%q)\n got %q\nwant %q", args, out, want)
			}
			if !slices.Equal(args, before) {
				t.Errorf("Reorder changed its argument to %q", args)
			}
		})
	}
}

func TestReorderArgsReturnsChildArgsVerbatim(t *testing.T) {
	tests := []struct {
		in     string
		after  []string
		dashed bool
	}{
		{"exec id -- cmd --json -- -h", []string{"cmd", "--json", "--", "-h"}, true},
		{"exec id --", []string{}, true},
		{"exec id", nil, false},
		{"start wt -- cmd", nil, true},
		{"start wt", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			_, after, dashed := Reorder(toyApp(nil), toyArgs(tt.in), toyKeepsChildArgs)
			if !slices.Equal(after, tt.after) || dashed != tt.dashed {
				t.Errorf("got after %q, dashed %v; want %q, %v", after, dashed, tt.after, tt.dashed)
			}
		})
	}
}

func TestReorderArgsWithoutPredicate(t *testing.T) {
	out, after, _ := Reorder(toyApp(nil), toyArgs("exec id -- cmd --json"), nil)
	if want := toyArgs("exec -- id cmd --json"); !slices.Equal(out, want) || after != nil {
		t.Errorf("got %q and after %q, want %q and none", out, after, want)
	}
}

func TestReorderArgsEmptyArgv(t *testing.T) {
	if out, after, dashed := Reorder(toyApp(nil), nil, nil); len(out) != 0 || after != nil || dashed {
		t.Errorf("got %q, %q, %v", out, after, dashed)
	}
}

func TestIsUrfaveCompletionChecksLastArgOnly(t *testing.T) {
	for in, want := range map[string]bool{
		"":                                        false,
		"start wt":                                false,
		"start --generate-bash-completion":        true,
		"start --generate-bash-completion wt":     false,
		"exec x -- --generate-bash-completion":    true,
		"start --name --generate-bash-complet":    false,
		"start --name --generate-bash-completion": true,
	} {
		if got := IsUrfaveCompletion(toyArgs(in)); got != want {
			t.Errorf("IsUrfaveCompletion(%q) = %v, want %v", in, got, want)
		}
	}
	if IsUrfaveCompletion(nil) {
		t.Error("IsUrfaveCompletion(nil) = true")
	}
}

func TestReorderedArgsReachAction(t *testing.T) {
	tests := []struct {
		in   string
		want toyCall
	}{
		{"start wt --json", toyCall{command: "start", json: true, args: []string{"wt"}}},
		{"start --json wt", toyCall{command: "start", json: true, args: []string{"wt"}}},
		{"start wt --name=x", toyCall{command: "start", name: "x", args: []string{"wt"}}},
		{"start wt -n x", toyCall{command: "start", name: "x", args: []string{"wt"}}},
		{"start -- -dash", toyCall{command: "start", args: []string{"-dash"}}},
		{"start - -z", toyCall{command: "start", zero: true, args: []string{"-"}}},
		{"start h --json", toyCall{command: "start", json: true, args: []string{"h"}}},
		{"start wt --quiet", toyCall{command: "start", quiet: true, args: []string{"wt"}}},
		{"start wt --lock-timeout -1", toyCall{command: "start", lockTimeout: "-1", args: []string{"wt"}}},
		{"worktree create n --from HEAD~1", toyCall{command: "create", from: "HEAD~1", args: []string{"n"}}},
		{"worktree ls --color always", toyCall{command: "ls", color: "always"}},
		{"exec id -- cmd --json", toyCall{command: "exec", args: []string{"id"}, after: []string{"cmd", "--json"}}},
		{"exec id --json -- cmd", toyCall{command: "exec", json: true, args: []string{"id"}, after: []string{"cmd"}}},
		{"exec id --cwd / -- cmd", toyCall{command: "exec", cwd: "/", args: []string{"id"}, after: []string{"cmd"}}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, _, err := toyRun(toyArgs(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if !got.equal(tt.want) {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestReorderedArgsReportBadFlag(t *testing.T) {
	for in, want := range map[string]string{
		"start wt --bogus":              "flag provided but not defined: -bogus",
		"start wt --lock-timeout":       "flag needs an argument: -lock-timeout",
		"start wt --color":              "flag needs an argument: -color",
		"worktree create n --from":      "flag needs an argument: -from",
		"exec id --cwd -- cmd":          "flag needs an argument: -cwd",
		"start wt --help --name":        "flag needs an argument: -name",
		"worktree --from HEAD create n": "flag provided but not defined: -from",
	} {
		seen, _, err := toyRun(toyArgs(in))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", in, err, want)
		}
		if seen.command != "" {
			t.Errorf("%s: the action ran with %+v", in, seen)
		}
	}
}

func TestHelpFlagAnywhereShowsCommandHelp(t *testing.T) {
	for in, want := range map[string]string{
		"start wt --help":         "toy start - ",
		"start -h wt --json":      "toy start - ",
		"--help start wt":         "toy start - ",
		"worktree create n -h":    "toy worktree create - ",
		"worktree --help":         "toy worktree - ",
		"exec id --help -- cmd x": "toy exec - ",
	} {
		seen, printed, err := toyRun(toyArgs(in))
		if err != nil || !strings.Contains(printed, want) {
			t.Errorf("%s: got error %v and %q, want %q", in, err, printed, want)
		}
		if seen.command != "" {
			t.Errorf("%s: the action ran with %+v", in, seen)
		}
	}
}

func TestFlagPositionDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := []string{"v", "-1", "--json", "-h", "-", "", "start", "a=b"}
	positionals := []string{"wt", "-", "", "start", "exec", "a=b", "h"}
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	for range 3000 {
		want := toyCall{command: pick([]string{"start", "exec"})}
		args := []string{"toy", want.command}
		for range rng.IntN(8) {
			v := pick(values)
			switch rng.IntN(7) {
			case 0:
				args, want.json = append(args, "--json"), true
			case 1:
				args, want.quiet = append(args, "--quiet"), true
			case 2:
				args, want.color = append(args, "--color="+v), v
			case 3:
				if want.command == "start" {
					args, want.name = append(args, pick([]string{"--name", "-name"}), v), v
				} else {
					args, want.cwd = append(args, "--cwd", v), v
				}
			default:
				p := pick(positionals)
				args, want.args = append(args, p), append(want.args, p)
			}
		}
		if rng.IntN(2) == 0 {
			tail := []string{"cmd", "--json", "--", "-h", "--quiet"}[:rng.IntN(6)]
			args = append(append(args, "--"), tail...)
			if want.command == "exec" {
				want.after = tail
			} else {
				want.args = append(want.args, tail...)
			}
		}
		got, _, err := toyRun(args)
		if err != nil || !got.equal(want) {
			t.Fatalf("%q: error %v\n got %+v\nwant %+v", args, err, got, want)
		}
	}
}

func TestReorderArgsKeepsRandomWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		choices := make([]byte, rng.IntN(10))
		for i := range choices {
			choices[i] = byte(rng.UintN(256))
		}
		checkReorderArgs(t, choices, "odd")
	}
}

func FuzzReorderArgs(f *testing.F) {
	f.Add([]byte{}, "")
	f.Add([]byte("start"), "--name=x")
	f.Add([]byte{0, 12, 19}, "-")
	f.Add([]byte{1, 2, 12, 15}, "--")
	f.Add([]byte{5, 12, 20, 5, 6}, "\x00")
	f.Fuzz(func(t *testing.T, choices []byte, odd string) { checkReorderArgs(t, choices, odd) })
}

// checkReorderArgs builds a command line out of words known to the toy app,
// plus the word odd, which the fuzzer chooses, and checks the result of Reorder.
func checkReorderArgs(t *testing.T, choices []byte, odd string) {
	t.Helper()
	vocabulary := [][]string{
		{"start"},
		{"worktree"},
		{"create"},
		{"wt"},
		{"ls"},
		{"exec"},
		{"raw"},
		{"id"},
		{"-"},
		{""},
		{odd},
		{odd},
		{"--json"},
		{"--quiet"},
		{"-z"},
		{"--all"},
		{"--name"},
		{"--name=x"},
		{"--from"},
		{"--cwd"},
		{"--bogus"},
		{"--color", "color-value"},
		{"--lock-timeout", "timeout-value"},
		{"--color"},
		{"--"},
		{"--"},
		{"-h"},
	}
	args := []string{"toy"}
	for _, c := range choices {
		args = append(args, vocabulary[int(c)%len(vocabulary)]...)
	}
	original := slices.Clone(args)
	out, after, dashed := Reorder(toyApp(nil), args, toyKeepsChildArgs)
	fail := func(why string) {
		t.Helper()
		t.Fatalf("%s:\n   in %q\n  out %q\nafter %q", why, original, out, after)
	}

	if !slices.Equal(args, original) {
		fail("the input slice was changed")
	}
	line, tail, found := CutDashDash(args)
	if dashed != found {
		fail("hadDashDash is wrong")
	}
	if after != nil && !slices.Equal(after, tail) {
		fail("after differs from the words behind --")
	}

	// Reorder drops words on purpose in two cases: the line asks for help,
	// or it ends with a flag whose value is missing.
	sheds := awaitsValue(line[len(line)-1]) || slices.ContainsFunc(line, isHelpFlag)
	if !sheds && after == nil && !slices.Equal(out[len(out)-len(tail):], tail) {
		fail("words after -- were not kept verbatim and last")
	}
	left := map[string]int{}
	for _, w := range args {
		left[w]++
	}
	for _, w := range slices.Concat(out, after) {
		left[w]--
	}
	delete(left, "--")
	for w, n := range left {
		if n < 0 || n > 0 && !sheds {
			fail("wrong count of word " + w)
		}
	}

	// Every command knows --color, so its value must stay next to it, unless
	// the flag itself may be the value of the preceding word.
	pairs := 0
	for i := 1; i+1 < len(line); i++ {
		if line[i] == "--color" && line[i+1] == "color-value" && !awaitsValue(line[i-1]) {
			pairs++
		}
	}
	flags, _, _ := CutDashDash(out)
	for i := 1; i < len(flags); i++ {
		if flags[i-1] == "--color" && flags[i] == "color-value" {
			pairs--
		}
	}
	if pairs > 0 && !sheds {
		fail("a value was separated from its flag")
	}
}

// awaitsValue reports whether word is a flag of the toy app that takes a value.
func awaitsValue(word string) bool {
	names := []string{"name", "n", "lock-timeout", "from", "cwd", "color"}
	return slices.Contains(names, strings.TrimLeft(word, "-"))
}

// toyCall records the flags and arguments that an action of the toy app received.
type toyCall struct {
	command                             string
	quiet, json, zero                   bool
	color, name, lockTimeout, from, cwd string
	args, after                         []string
}

func (s toyCall) equal(o toyCall) bool {
	same := slices.Equal(s.args, o.args) && slices.Equal(s.after, o.after) &&
		s.command == o.command && s.quiet == o.quiet && s.json == o.json && s.zero == o.zero
	return same && s.color == o.color && s.name == o.name && s.lockTimeout == o.lockTimeout &&
		s.from == o.from && s.cwd == o.cwd
}

// toyRun runs the toy app with reordered args and returns the recorded call and the printed text.
func toyRun(args []string) (seen toyCall, printed string, err error) {
	var buf bytes.Buffer
	app := toyApp(&seen)
	app.Writer = &buf
	out, after, _ := Reorder(app, args, toyKeepsChildArgs)
	err = app.Run(out)
	seen.after = after
	return seen, buf.String(), err
}

func toyArgs(words string) []string {
	return append([]string{"toy"}, strings.Fields(words)...)
}

func toyKeepsChildArgs(cmd *cli.Command) bool { return cmd.Name == "exec" }

// toyApp returns a new sample app whose actions record their call in seen. It is
// built for every run because urfave appends to the commands it runs.
func toyApp(seen *toyCall) *cli.App {
	action := func(c *cli.Context) error {
		*seen = toyCall{
			command: c.Command.Name, args: c.Args().Slice(),
			quiet: c.Bool("quiet"), json: c.Bool("json"), zero: c.Bool("z"),
			color: c.String("color"), name: c.String("name"), lockTimeout: c.String("lock-timeout"),
			from: c.String("from"), cwd: c.String("cwd"),
		}
		return nil
	}
	text := func(name string, aliases ...string) cli.Flag { return &cli.StringFlag{Name: name, Aliases: aliases} }
	truth := func(name string, aliases ...string) cli.Flag { return &cli.BoolFlag{Name: name, Aliases: aliases} }
	command := func(name string, flags ...cli.Flag) *cli.Command {
		// Without HideHelpCommand a positional `h` or `help` is a subcommand.
		return &cli.Command{Name: name, Usage: "x", Action: action, HideHelpCommand: true, Flags: flags}
	}

	create := command("create", text("from"))
	create.Aliases = []string{"new"}
	worktree := command("worktree", truth("all"))
	worktree.Aliases = []string{"wt"}
	worktree.Subcommands = []*cli.Command{create, command("ls")}
	raw := command("raw")
	raw.SkipFlagParsing = true
	return &cli.App{
		Name: "toy", HideVersion: true, Writer: io.Discard, ErrWriter: io.Discard,
		ExitErrHandler: func(*cli.Context, error) {},
		Flags:          []cli.Flag{truth("quiet"), text("color")},
		Commands: []*cli.Command{
			command("start", text("name", "n"), truth("json"), text("lock-timeout"), truth("zero", "z")),
			worktree,
			command("exec", text("cwd"), truth("json"), text("color")),
			raw,
		},
	}
}
