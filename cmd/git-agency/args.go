package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// permute reorders a command line, program name first, into one that App.Run
// reads the way git users mean it. urfave/cli stops looking for flags at the
// first positional, so `start wt --json` would silently drop --json.
//
// Each flag moves in front of the positionals of the innermost command that
// defines it; that takes --quiet in `start wt --quiet` up to the app. Flags
// nobody defines stay with the command at hand, where urfave reports them.
//
// The user's first `--` ends all of this, even where a flag still waits for
// its value: what follows may be somebody else's command line. If ownsChild
// says so of the command, those words come back in after and not in out; any
// other command sees them as positionals. A nil ownsChild means no command
// does. hadDashDash tells `exec id --` from `exec id`.
//
// Combined short flags (-xy) are taken for one unknown flag; App's
// UseShortOptionHandling would need to be taught here first.
func permute(app *cli.App, args []string, ownsChild func(*cli.Command) bool) (out, after []string, hadDashDash bool) {
	line, tail, hadDashDash := cutDashDash(args)
	// A `--` of ours would switch urfave's completion off and run the action.
	if len(args) == 0 || completing(args) {
		return args, nil, hadDashDash
	}

	root := &cli.Command{Flags: app.Flags, Subcommands: app.Commands}
	levels := []*argLevel{{cmd: root, word: args[0]}}
	var help, positionals []string
	for i := 1; i < len(line); i++ {
		word, current := line[i], levels[len(levels)-1]
		switch {
		case isHelp(word):
			help = []string{word}
		case isFlag(word):
			owner, takesValue := flagOwner(levels, word)
			owner.flags = append(owner.flags, word)
			if takesValue && i+1 == len(line) {
				// Only as the last word of all is it sure to be reported; else
				// it would swallow the word or the `--` that we put behind it.
				return joinLevels(levels[:slices.Index(levels, owner)+1]), nil, hadDashDash
			}
			if takesValue {
				i++
				owner.flags = append(owner.flags, line[i])
			}
		case len(current.cmd.Subcommands) > 0:
			cmd := current.cmd.Command(word)
			if cmd == nil || cmd.SkipFlagParsing {
				// Not ours to understand: the app reports it, or parses it itself.
				return slices.Concat(joinLevels(levels), help, args[i:]), nil, hadDashDash
			}
			levels = append(levels, &argLevel{cmd: cmd, word: word})
		default:
			positionals = append(positionals, word)
		}
	}

	if ownsChild != nil && ownsChild(levels[len(levels)-1].cmd) {
		after = tail
	} else {
		positionals = append(positionals, tail...)
	}
	switch {
	case help != nil:
		// urfave would look for a help topic named after the first positional.
		return append(joinLevels(levels), help...), after, hadDashDash
	case len(positionals) == 0:
		return joinLevels(levels), after, hadDashDash
	}
	return slices.Concat(joinLevels(levels), []string{"--"}, positionals), after, hadDashDash
}

// completing reports whether a shell asks for completions. main must then
// never run an action: urfave ignores the request when a `--` is among the
// words or EnableBashCompletion is off, and TAB would start an agent.
func completing(args []string) bool {
	words := []string{"--generate-bash-completion", "--generate-shell-completion"} // of urfave, in its versions
	return len(args) > 0 && slices.Contains(words, args[len(args)-1])
}

// argLevel is the program or a command as named on the command line, with the
// flags that belong right behind its word.
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

// flagOwner finds the innermost level that defines the flag, and whether the
// next word is the flag's value.
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

// attachedFlag is a flag whose value, if it has one, is attached to it by an
// equals sign: in `--color ls`, as in git, ls is not the colour. Its Value must
// have IsBoolFlag, by which the flag package knows the same.
type attachedFlag struct{ *cli.GenericFlag }

func (f attachedFlag) TakesValue() bool { return false }
func (f attachedFlag) String() string   { return cli.FlagStringer(f) }

// isFlag excludes a lone `-`, which stands for standard input.
func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// isHelp knows the flags that urfave adds to every command only once it runs.
func isHelp(word string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, word)
}

func cutDashDash(args []string) (before, tail []string, found bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}
