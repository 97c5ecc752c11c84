package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// reorderArgs reorders a command line, program name first, so that App.Run parses it as git users expect. urfave/cli
// stops parsing flags at the first positional argument, so that `start wt --json` would silently drop --json.
//
// Each flag moves in front of the positionals of the innermost command that defines it; --quiet in `start wt --quiet`
// thus moves up to the app. A flag that no command defines stays with the innermost command, where urfave reports it.
//
// The first `--` ends the reordering, even where a flag still waits for its value, because another program's command
// line may follow. If keepsAfter reports true for the command, the words after `--` are returned in after and not in
// out; for any other command they are positionals. A nil keepsAfter means false for all commands. hadDashDash
// distinguishes `exec id --` from `exec id`.
//
// Combined short flags (-xy) are treated as one unknown flag; to use App's UseShortOptionHandling, change this
// function first.
func reorderArgs(app *cli.App, args []string, keepsAfter func(*cli.Command) bool) (out, after []string, hadDashDash bool) {
	line, tail, hadDashDash := cutDashDash(args)
	// A `--` added by us would turn urfave's completion off and run the action.
	if len(args) == 0 || isUrfaveCompletion(args) {
		return args, nil, hadDashDash
	}

	root := &cli.Command{Flags: app.Flags, Subcommands: app.Commands}
	levels := []*argLevel{{cmd: root, word: args[0]}}
	var help, positionals []string
	for i := 1; i < len(line); i++ {
		word, current := line[i], levels[len(levels)-1]
		switch {
		case isHelpFlag(word):
			help = []string{word}
		case isFlag(word):
			owner, takesValue := flagOwner(levels, word)
			owner.flags = append(owner.flags, word)
			if takesValue && i+1 == len(line) {
				// urfave reports a missing value only if the flag is the last word; elsewhere the flag would swallow
				// the word or the `--` that we put behind it.
				return joinLevels(levels[:slices.Index(levels, owner)+1]), nil, hadDashDash
			}
			if takesValue {
				i++
				owner.flags = append(owner.flags, line[i])
			}
		case len(current.cmd.Subcommands) > 0:
			cmd := current.cmd.Command(word)
			if cmd == nil || cmd.SkipFlagParsing {
				// Leave the rest as it is: the app reports an unknown command, or the command parses its own flags.
				return slices.Concat(joinLevels(levels), help, args[i:]), nil, hadDashDash
			}
			levels = append(levels, &argLevel{cmd: cmd, word: word})
		default:
			positionals = append(positionals, word)
		}
	}

	if keepsAfter != nil && keepsAfter(levels[len(levels)-1].cmd) {
		after = tail
	} else {
		positionals = append(positionals, tail...)
	}
	switch {
	case help != nil:
		// Drop the positionals: urfave would look for a help topic named after the first of them.
		return append(joinLevels(levels), help...), after, hadDashDash
	case len(positionals) == 0:
		return joinLevels(levels), after, hadDashDash
	}
	return slices.Concat(joinLevels(levels), []string{"--"}, positionals), after, hadDashDash
}

// isUrfaveCompletion reports whether the last word is urfave's own request for completions. No action may run then:
// urfave ignores the request if a `--` is among the words or EnableBashCompletion is off, and TAB would start an
// agent.
func isUrfaveCompletion(args []string) bool {
	words := []string{"--generate-bash-completion", "--generate-shell-completion"} // urfave's names for it, by version
	return len(args) > 0 && slices.Contains(words, args[len(args)-1])
}

// argLevel is the program or a command on the command line, with the flags that belong right behind its name.
type argLevel struct {
	cmd   *cli.Command
	word  string
	flags []string
}

func joinLevels(levels []*argLevel) []string {
	var words []string
	for _, l := range levels {
		words = append(words, l.word)
		words = append(words, l.flags...)
	}
	return words
}

// flagOwner returns the innermost level that defines the flag, and whether the next word is the flag's value.
func flagOwner(levels []*argLevel, word string) (owner *argLevel, takesValue bool) {
	name, _, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	for _, l := range slices.Backward(levels) {
		for _, f := range l.cmd.Flags {
			if slices.Contains(f.Names(), name) {
				doc, ok := f.(cli.DocGenerationFlag)
				return l, ok && doc.TakesValue() && !hasValue
			}
		}
	}
	return levels[len(levels)-1], false
}

// attachedValueFlag is a flag whose optional value is attached by an equals sign: in `--color ls`, as in git, ls is
// not the colour. Its Value must have IsBoolFlag, which tells the flag package the same.
type attachedValueFlag struct{ *cli.GenericFlag }

func (f attachedValueFlag) TakesValue() bool { return false }
func (f attachedValueFlag) String() string   { return cli.FlagStringer(f) }

// isFlag excludes a lone `-`, which means standard input.
func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// isHelpFlag recognizes the help flags, which urfave adds to each command only when it runs.
func isHelpFlag(word string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, word)
}

func cutDashDash(args []string) (before, tail []string, found bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}
