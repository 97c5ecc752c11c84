// Package complete answers a shell in which the user has pressed TAB: it reads the words before the cursor, lists what can
// stand there, and holds the scripts of the shells. It must never run a command, change anything, or report an error.
package complete

import (
	"context"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// IsRequest reports whether a command line is a request of the completion scripts. Only Answer may handle it; no command
// may run.
func IsRequest(args []string) bool {
	return len(args) > 1 && args[1] == "__complete"
}

// Request is the command line of a shell in which the user has pressed TAB.
type Request struct {
	App      *cli.App          // required
	Words    []string          // required: words after __complete
	Sections func() []string   // required: returns the sections of the manual
	Options  gitagency.Options // options to open the repository with
}

// Answer writes the candidates for a request of the scripts:
//
//	git-agency __complete -- <words of the line>... <word at the cursor>
//
// These words never reach urfave, so that no command can run, whatever they are. The repository is opened at most once
// and only to read, and errors are not reported: the user wants candidates or silence.
//
// The answer is one candidate per line, "value TAB description". Candidates are not filtered by the word at the
// cursor, since shells differ in what they count as a match. A line without a value tells the shell what to complete
// itself: "TAB files", "TAB directories", "TAB commands" or "TAB commits". After "TAB replace" come candidates that the
// shell must not filter: they replace the word at the cursor, however they begin. A value that ends in a slash is
// incomplete: the shell puts no space behind it.
func Answer(ctx context.Context, w io.Writer, req Request) {
	if len(req.Words) < 2 || req.Words[0] != "--" {
		return
	}
	req.Words = req.Words[1:]
	for _, c := range candidates(ctx, req) {
		if line, ok := c.line(); ok {
			_, _ = io.WriteString(w, line) // the shell has gone, so nothing reads an error either
		}
	}
}

// candidate is one word that can stand at the cursor. Without a value, the description names what the shell completes
// itself.
type candidate struct{ value, description string }

// line formats a candidate for the scripts. It reports false for a value that does not fit on one line or that could
// control the terminal.
func (c candidate) line() (string, bool) {
	if !utf8.ValidString(c.value) || strings.ContainsAny(c.value, "\n\t") || strings.ContainsFunc(c.value, term.IsUnprintable) {
		return "", false
	}
	if c.description == "" {
		return c.value + "\n", true
	}
	return c.value + "\t" + strings.Join(strings.Fields(term.Printable(c.description)), " ") + "\n", true
}

// commandLine is a command line up to the cursor.
type commandLine struct {
	Request
	ctx               context.Context
	repo              *gitagency.Repository // nil until a lister opens it
	levels            []*argv.Level         // the program and the named commands
	args              []string              // arguments before the cursor
	givenFlags        []string              // flags before the cursor, as typed
	pendingFlag       string                // flag whose value is at the cursor
	partialWord       string                // typed part of the argument or value at the cursor
	hasDashDash       bool                  // whether there was a "--"
	hasUnknownCommand bool                  // whether a word in place of a command is none
}

// candidates returns the candidates for the last word.
func candidates(ctx context.Context, req Request) []candidate {
	line, current := req.Words[:len(req.Words)-1], req.Words[len(req.Words)-1]
	root := &cli.Command{Flags: req.App.Flags, Subcommands: req.App.Commands}
	cl := &commandLine{Request: req, ctx: ctx, levels: []*argv.Level{{Cmd: root}}}
	cl.parse(line)
	cl.partialWord = current
	command := cl.levels[len(cl.levels)-1].Cmd
	switch flag, value, hasValue := strings.Cut(current, "="); {
	case cl.hasUnknownCommand:
		return nil
	case cl.pendingFlag != "":
		return cl.listWith(cl.flagLister(cl.pendingFlag), "")
	case cl.hasDashDash:
		return cl.listWith(cl.argumentLister(" --"), "")
	case argv.IsFlag(current) && hasValue:
		cl.partialWord = value
		return cl.listWith(cl.flagLister(flag), flag+"=")
	case strings.HasPrefix(current, "-"):
		return cl.flagCandidates()
	case len(command.Subcommands) > 0:
		return commandCandidates(command.Subcommands)
	}
	return cl.listWith(cl.argumentLister(""), "")
}

// parse parses the words before the cursor as argv.Reorder does.
func (cl *commandLine) parse(line []string) {
	for i := 0; i < len(line) && !cl.hasUnknownCommand; i++ {
		word, current := line[i], cl.levels[len(cl.levels)-1].Cmd
		switch {
		case cl.hasDashDash:
			cl.args = append(cl.args, word)
		case word == "--":
			cl.hasDashDash = true
		case argv.IsFlag(word):
			cl.givenFlags = append(cl.givenFlags, word)
			_, takesValue := argv.FlagOwner(cl.levels, word)
			switch {
			case takesValue && i+1 == len(line):
				cl.pendingFlag = word
			case takesValue && line[i+1] != "--":
				i++
			}
		case len(current.Subcommands) > 0:
			cmd := current.Command(word)
			cl.hasUnknownCommand = cmd == nil
			cl.levels = append(cl.levels, &argv.Level{Cmd: cmd})
		default:
			cl.args = append(cl.args, word)
		}
	}
}

// listWith returns the candidates of a lister, with prefix added to each value.
func (cl *commandLine) listWith(k lister, prefix string) []candidate {
	if k == nil {
		return nil
	}
	found, err := k(cl)
	if err != nil {
		return nil // errors are not reported, see Answer
	}
	// A value from a record or setting must not become an option.
	found = slices.DeleteFunc(found, func(c candidate) bool { return strings.HasPrefix(c.value, "-") })
	for i, c := range found {
		if c.value != "" {
			found[i].value = prefix + c.value
		}
	}
	return found
}

// commandPath returns the name of the command, with those of its groups.
func (cl *commandLine) commandPath() string {
	var names []string
	for _, l := range cl.levels[1:] {
		names = append(names, l.Cmd.Name)
	}
	return strings.Join(names, " ")
}

// argumentLister returns the lister for the argument at the cursor, or nil.
func (cl *commandLine) argumentLister(suffix string) lister {
	kinds := argumentListers[cl.commandPath()+suffix]
	switch at, last := len(cl.args), len(kinds)-1; {
	case last > 0 && kinds[last] == nil && at >= last: // repeatLast
		return kinds[last-1]
	case at <= last:
		return kinds[at]
	}
	return nil
}

// flagLister returns the lister for the value of a flag, by any of its names.
func (cl *commandLine) flagLister(word string) lister {
	for _, l := range slices.Backward(cl.levels) {
		for _, f := range l.Cmd.Flags {
			if !flagHasName(f, word) {
				continue
			}
			list, _ := findFlagLister(cl.commandPath(), f)
			return list
		}
	}
	return nil
}

// findFlagLister finds the lister of a flag of a command by any of its names.
func findFlagLister(command string, f cli.Flag) (list lister, found bool) {
	for _, name := range f.Names() {
		for _, key := range []string{command + " " + argv.WithDashes(name), argv.WithDashes(name)} {
			if list, found := flagListers[key]; found {
				return list, true
			}
		}
	}
	return nil, false
}

// CoversFlag reports whether the value of a flag of a command has a lister.
func CoversFlag(command string, f cli.Flag) bool {
	_, found := findFlagLister(command, f)
	return found
}

// CoversCommand reports whether the arguments of a command are listed, and whether there are any.
func CoversCommand(command string) (found, hasArguments bool) {
	kinds, found := argumentListers[command]
	return found, len(kinds) > 0
}

// flagCandidates returns the flags of the named commands, the innermost first, and those of the program. A flag that
// is on the line already is left out, unless it may be repeated.
func (cl *commandLine) flagCandidates() []candidate {
	var found []candidate
	for _, l := range slices.Backward(cl.levels) {
		for _, f := range l.Cmd.Flags {
			name := f.Names()[0]
			doc, documented := f.(cli.DocGenerationFlag)
			visible, canHide := f.(cli.VisibleFlag)
			again := slices.ContainsFunc(cl.givenFlags, func(word string) bool { return flagHasName(f, word) })
			switch {
			case canHide && !visible.IsVisible():
			case again && !isRepeatable(f):
			case name == "version" && len(cl.levels) > 1: // --version is a flag of the program only
			case slices.ContainsFunc(found, func(c candidate) bool { return c.value == argv.WithDashes(name) }):
			case documented:
				found = append(found, candidate{argv.WithDashes(name), strings.ReplaceAll(doc.GetUsage(), "`", "")})
			default:
				found = append(found, candidate{argv.WithDashes(name), ""})
			}
		}
	}
	return found
}

func isRepeatable(f cli.Flag) bool {
	if generic, ok := f.(*cli.GenericFlag); ok {
		_, ok := generic.Value.(*argv.RepeatedFlag)
		return ok
	}
	slice, ok := f.(cli.DocGenerationSliceFlag)
	return ok && slice.IsSliceFlag()
}

// flagHasName reports whether a word of the line is this flag.
func flagHasName(f cli.Flag, word string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	return slices.Contains(f.Names(), name)
}

func commandCandidates(commands []*cli.Command) []candidate {
	var found []candidate
	for _, c := range commands {
		if !c.Hidden {
			found = append(found, candidate{c.Name, c.Usage})
		}
	}
	return found
}
