// Package argv reads the words of a command line as git users expect: it orders them for urfave/cli, finds the command
// that a flag belongs to, and suggests the word that was meant. It must never run a command or print.
package argv

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Reorder reorders a command line, program name first, so that App.Run parses it as git users expect. urfave/cli
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
func Reorder(app *cli.App, args []string, keepsAfter func(*cli.Command) bool) (out, after []string, hadDashDash bool) {
	line, tail, hadDashDash := CutDashDash(args)
	// A `--` added by us would turn urfave's completion off and run the action.
	if len(args) == 0 || IsUrfaveCompletion(args) {
		return args, nil, hadDashDash
	}

	root := &cli.Command{Flags: app.Flags, Subcommands: app.Commands}
	levels := []*Level{{Cmd: root, word: args[0]}}
	var help, positionals []string
	for i := 1; i < len(line); i++ {
		word, current := line[i], levels[len(levels)-1]
		switch {
		case isHelpFlag(word):
			help = []string{word}
		case IsFlag(word):
			owner, takesValue := FlagOwner(levels, word)
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
		case len(current.Cmd.Subcommands) > 0:
			cmd := current.Cmd.Command(word)
			if cmd == nil || cmd.SkipFlagParsing {
				// Leave the rest as it is: the app reports an unknown command, or the command parses its own flags.
				return slices.Concat(joinLevels(levels), help, args[i:]), nil, hadDashDash
			}
			levels = append(levels, &Level{Cmd: cmd, word: word})
		default:
			positionals = append(positionals, word)
		}
	}

	if keepsAfter != nil && keepsAfter(levels[len(levels)-1].Cmd) {
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

// IsUrfaveCompletion reports whether the last word is urfave's own request for completions. No action may run then:
// urfave ignores the request if a `--` is among the words or EnableBashCompletion is off, and TAB would start an
// agent.
func IsUrfaveCompletion(args []string) bool {
	words := []string{"--generate-bash-completion", "--generate-shell-completion"} // urfave's names for it, by version
	return len(args) > 0 && slices.Contains(words, args[len(args)-1])
}

// Level is the program or a command on the command line, with the flags that belong right behind its name.
type Level struct {
	Cmd   *cli.Command
	word  string
	flags []string
}

func joinLevels(levels []*Level) []string {
	var words []string
	for _, l := range levels {
		words = append(words, l.word)
		words = append(words, l.flags...)
	}
	return words
}

// FlagOwner returns the innermost level that defines the flag, and whether the next word is the flag's value.
func FlagOwner(levels []*Level, word string) (owner *Level, takesValue bool) {
	name, _, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	for _, l := range slices.Backward(levels) {
		for _, f := range l.Cmd.Flags {
			if slices.Contains(f.Names(), name) {
				doc, ok := f.(cli.DocGenerationFlag)
				return l, ok && doc.TakesValue() && !hasValue
			}
		}
	}
	return levels[len(levels)-1], false
}

// AttachedValueFlag is a flag whose optional value is attached by an equals sign: in `--color ls`, as in git, ls is
// not the colour. Its Value must have IsBoolFlag, which tells the flag package the same.
type AttachedValueFlag struct{ *cli.GenericFlag }

func (f AttachedValueFlag) TakesValue() bool { return false }
func (f AttachedValueFlag) String() string   { return cli.FlagStringer(f) }

// OptionalValue is the value of an AttachedValueFlag that may be given alone.
type OptionalValue struct {
	Given bool
	Text  string // empty if the flag was given alone
}

func (v *OptionalValue) Set(text string) error {
	if v.Given = true; text != "true" { // the flag package's value for a flag without one
		v.Text = text
	}
	return nil
}

func (v *OptionalValue) String() string { return v.Text }

// IsBoolFlag keeps the flag package from taking the next word as the value.
func (v *OptionalValue) IsBoolFlag() bool { return true }

// IsFlag reports whether a word is a flag. It excludes a lone `-`, which means standard input.
func IsFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// isHelpFlag recognizes the help flags, which urfave adds to each command only when it runs.
func isHelpFlag(word string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, word)
}

// CutDashDash splits words at the first `--`.
func CutDashDash(args []string) (before, tail []string, found bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}

// RepeatedFlag is the value of a flag that may be repeated. It keeps each value verbatim.
type RepeatedFlag struct{ Values []string }

func (f *RepeatedFlag) Set(word string) error { f.Values = append(f.Values, word); return nil }
func (f *RepeatedFlag) String() string        { return strings.Join(f.Values, " ") }
