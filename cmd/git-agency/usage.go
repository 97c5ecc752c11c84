package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// usageError is a command line that cannot be meant. It exits with 129, as in git.
type usageError struct {
	err    error
	usage  string
	listed bool // a list of the commands would help
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func asUsage(c *cli.Context, err error) error {
	return &usageError{err: err, usage: c.Command.UsageText}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	const undefined = "flag provided but not defined: -"
	usage, flags := c.App.UsageText, c.App.Flags
	if c.Command != nil && c.Command.UsageText != "" {
		usage, flags = c.Command.UsageText, append(slices.Clone(c.Command.Flags), flags...)
	}
	if name, ok := strings.CutPrefix(err.Error(), undefined); ok {
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()...)
		}
		message := fmt.Sprintf("unknown option %q", dashed(name))
		if near := nearest(name, names); near != "" {
			message += fmt.Sprintf("; did you mean %q?", dashed(near))
		}
		err = errors.New(message)
	}
	return &usageError{err: err, usage: usage}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// unknownCommand is what a command group does with a word that is none of its commands.
func unknownCommand(c *cli.Context, commands []*cli.Command, usage string) error {
	word := c.Args().First()
	if word == "" {
		return &usageError{err: errors.New("no command given"), usage: usage, listed: true}
	}
	return noSuchCommand(word, c.Command.HelpName, commands, usage)
}

// noSuchCommand is a word that is none of the commands of a group, and the one that may have been meant.
func noSuchCommand(word, group string, commands []*cli.Command, usage string) error {
	var names []string
	for _, cmd := range commands {
		names = append(names, cmd.Names()...)
	}
	message := fmt.Sprintf("%q is not a command of %s", word, group)
	if near := nearest(word, names); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return &usageError{err: errors.New(message), usage: usage, listed: true}
}

// nearest is the candidate that looks most like a word, if any looks like it at all.
func nearest(word string, candidates []string) string {
	best, least := "", 3
	for _, c := range candidates {
		if d := distance(word, c); d < least && d < len(word) {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their neighbour.
func distance(a, b string) int {
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
