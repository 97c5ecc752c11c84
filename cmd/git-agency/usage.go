package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// usageError reports an invalid command line. Its exit code is 129, as in git.
type usageError struct {
	err   error
	usage string
	group string // command group whose -h lists the valid commands
	hint  string // command to type instead, if known
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newUsageError(c *cli.Context, err error) error {
	return &usageError{err: err, usage: c.Command.UsageText}
}

// onUsageError replaces the flag package's messages about flags with ours.
func (t *tool) onUsageError(c *cli.Context, err error, _ bool) error {
	const undefined, unfinished = "flag provided but not defined: -", "flag needs an argument: -"
	usage, flags := c.App.UsageText, c.App.Flags
	if c.Command != nil && c.Command.UsageText != "" {
		usage, flags = c.Command.UsageText, append(slices.Clone(c.Command.Flags), flags...)
	}
	if name, ok := strings.CutPrefix(err.Error(), undefined); ok {
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()...)
		}
		message := fmt.Sprintf("unknown option %q", t.flagAsTyped(name))
		if near := nearestWord(name, names); near != "" {
			message += fmt.Sprintf("; did you mean %q?", withDashes(near))
		}
		err = errors.New(message)
		if _, _, dashes := cutDashDash(t.args); !dashes && strings.Contains(usage, " -- <command>") {
			return &usageError{err: err, usage: usage, hint: "a command and its options come behind --, as in: exec <id> -- ls -l"}
		}
	}
	if name, ok := strings.CutPrefix(err.Error(), unfinished); ok {
		err = errors.New(withDashes(strings.TrimPrefix(name, "-")) + " needs a value")
	}
	if m := invalidBoolean.FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("%s takes no value, and was given %s", withDashes(m[2]), m[1])
	}
	return &usageError{err: err, usage: usage}
}

// invalidBoolean matches the flag package's message about a value for a flag that takes none.
var invalidBoolean = regexp.MustCompile(`^invalid boolean value (".*") for -(\S+): `)

// flagAsTyped returns an option with as many dashes as the user typed, which the flag package does not keep.
func (t *tool) flagAsTyped(name string) string {
	line, _, _ := cutDashDash(t.args)
	if slices.ContainsFunc(line, func(word string) bool { return word == "-"+name || strings.HasPrefix(word, "-"+name+"=") }) {
		return "-" + name
	}
	return withDashes(name)
}

// optionalPart matches an innermost pair of brackets in a usage line.
var optionalPart = regexp.MustCompile(`\[[^][]*\]`)

// missingArgument returns the argument that a usage line requires after the given ones, or "".
func missingArgument(usage string, given int) string {
	line, _, _ := strings.Cut(usage, "\n")
	line, _, _ = strings.Cut(line, " -- ")
	for optionalPart.MatchString(line) {
		line = optionalPart.ReplaceAllString(line, "")
	}
	for word := range strings.FieldsSeq(line) {
		if word[0] != '<' && word[0] != '(' {
			continue
		}
		if given == 0 {
			return strings.TrimSuffix(word, "...")
		}
		given--
	}
	return ""
}

func withDashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// groupUsageError reports that the command line names no command of a group, or an unknown one.
func groupUsageError(c *cli.Context, commands []*cli.Command, usage string) error {
	word := c.Args().First()
	if word == "" {
		return &usageError{err: errors.New("no command given"), usage: usage, group: c.Command.HelpName}
	}
	return unknownCommandError(word, c.Command.HelpName, commands, usage)
}

// unknownCommandError reports a word that is no command of a group, and suggests the command that was probably meant.
func unknownCommandError(word, group string, commands []*cli.Command, usage string) error {
	var names []string
	for _, cmd := range commands {
		names = append(names, cmd.Names()...)
	}
	message := fmt.Sprintf("%q is not a command of %s", word, group)
	near := commandSynonyms[word]
	if !slices.Contains(names, near) {
		near = nearestWord(word, names)
	}
	if near == "" {
		near = findSubcommand(word, commands)
	}
	if near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	hint := ""
	if len(commands) > 0 && strings.Contains(commands[0].UsageText, " <id>") && looksLikeID(word) {
		hint = fmt.Sprintf("type '%s %s %s'", group, commands[0].Name, word)
	}
	return &usageError{err: errors.New(message), usage: usage, group: group, hint: hint}
}

// findSubcommand returns the subcommand called word of one of the commands, or "" unless there is exactly one.
func findSubcommand(word string, commands []*cli.Command) string {
	var found []string
	for _, group := range commands {
		for _, cmd := range group.Subcommands {
			if cmd.HasName(word) {
				found = append(found, group.Name+" "+cmd.Name)
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// looksLikeID reports whether word could be an id or a prefix of one.
func looksLikeID(word string) bool {
	return word[0] >= '0' && word[0] <= '9' && strings.Trim(word, "0123456789abcdef-") == ""
}

// commandSynonyms maps names that git and other tools use to our commands.
var commandSynonyms = map[string]string{"add": "create", "new": "create", "remove": "rm", "rm": "discard", "restore": "rollback", "revert": "rollback", "undo": "rollback", "export": "checkout", "fork": "start", "delete": "rm", "status": "ls", "info": "show", "gc": "prune", "run": "exec", "cp": "put", "copy": "put", "upload": "put", "fsck": "doctor", "repair": "doctor", "install": "setup"}

// nearestWord returns the candidate most similar to word, or "" if none is close enough: within one edit, or two in a
// long word. Failing that, it returns the only candidate that begins with word.
func nearestWord(word string, candidates []string) string {
	best, least := "", min(max(len(word)/3, 1), 2)+1
	for _, c := range candidates {
		if d := editDistance(word, c); d < least && d < len(word) {
			best, least = c, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, word) {
			if best != "" {
				return ""
			}
			best = c
		}
	}
	return best
}

// editDistance counts the letters to insert, remove, replace or swap with their neighbour to turn a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
			default:
				change := rows[i-1][j-1]
				if a[i-1] != b[j-1] {
					change++
				}
				rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, change)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}
