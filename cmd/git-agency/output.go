package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// outputError reports that the result of a completed command could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string {
	return fmt.Sprintf("the command was carried out, but its result could not be written: %v", e.err)
}

// withJSONFlag adds --json to the flags of a command.
func withJSONFlag(flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.BoolFlag{Name: "json", Usage: "print JSON"})
}

// withListingFlags adds the flags of all stable output forms: --json, --porcelain and -z.
func withListingFlags(flags ...cli.Flag) []cli.Flag {
	return append(withJSONFlag(flags...),
		&cli.BoolFlag{Name: "porcelain", Usage: "print blocks of 'key value' lines for scripts"},
		&cli.BoolFlag{Name: "z", Usage: "with --porcelain, end lines with NUL instead of newline"})
}

// checkListingArgs checks the command line of a listing, which takes output flags and no arguments.
func checkListingArgs(c *cli.Context) error {
	if _, err := positionalArgs(c, 0, 0); err != nil {
		return err
	}
	return checkOutputFlags(c)
}

// openForQuery opens the repository for a command that prints one record, and returns its name or id.
func (t *tool) openForQuery(c *cli.Context) (_ *gitagency.Repository, query string, err error) {
	args, err := positionalArgs(c, 1, 1)
	if err == nil {
		err = checkOutputFlags(c)
	}
	if err != nil {
		return nil, "", err
	}
	repo, err := t.openRepository(c)
	return repo, args[0], err
}

// openForInvocations opens the repository for a command that acts on each named invocation in turn. All of them are
// looked up first, so that a typo in the last is reported before the first is acted on.
func (t *tool) openForInvocations(c *cli.Context) (*gitagency.Repository, []gitagency.Invocation, error) {
	args, err := positionalArgs(c, 1, -1)
	if err != nil {
		return nil, nil, err
	}
	repo, err := t.openRepository(c)
	if err != nil {
		return nil, nil, err
	}
	var named []gitagency.Invocation
	for _, query := range args {
		inv, err := repo.Invocation(query)
		if err != nil {
			return nil, nil, err
		}
		named = append(named, inv)
	}
	return repo, named, nil
}

// checkOutputFlags refuses output flags that contradict each other.
func checkOutputFlags(c *cli.Context) error {
	switch {
	case c.Bool("json") && c.Bool("porcelain"):
		return newUsageError(c, errors.New("--json and --porcelain exclude each other"))
	case c.IsSet("format") && (c.Bool("json") || c.Bool("porcelain")):
		return newUsageError(c, errors.New("--format excludes --json and --porcelain"))
	case c.Bool("z") && !c.Bool("porcelain"):
		return newUsageError(c, errors.New("-z needs --porcelain"))
	}
	return nil
}

// printJSON prints v as indented JSON.
func (t *tool) printJSON(v any) error { return format.WriteJSON(t.stdout, v) }

// printLine prints one value on a line, for use by scripts: verbatim, except that on a terminal control characters are
// escaped.
func (t *tool) printLine(value string) error {
	if t.showsOnTerminal() {
		value = term.Printable(value)
	}
	_, err := fmt.Fprintln(t.stdout, value)
	return err
}

// printPath prints the path of a record, also if it is broken, and returns broken.
func (t *tool) printPath(c *cli.Context, key, path string, broken error) error {
	if path == "" {
		return broken
	}
	var err error
	if c.Bool("json") {
		err = t.printJSON(map[string]string{key: path})
	} else {
		err = t.printLine(path)
	}
	if err != nil {
		return err
	}
	return broken
}

// field is one line of a porcelain block. An optional field with an empty value prints no line.
type field struct {
	key, value string
	optional   bool
}

// printList prints records in the form that the flags ask for.
func printList[T any](t *tool, c *cli.Context, things []T, porcelain func(T) []field, header []string, row func(T) []string) error {
	switch {
	case c.Bool("json"):
		return t.printJSON(things)
	case c.Bool("porcelain"):
		for _, thing := range things {
			if err := t.printBlock(c.Bool("z"), porcelain(thing)); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{}
	for _, thing := range things {
		rows = append(rows, row(thing))
	}
	return t.printTable(header, rows)
}

// printOne prints a record in the form that the flags ask for, also if it is broken, and returns its Err.
func printOne[T interface{ Err() error }](t *tool, c *cli.Context, thing T, porcelain, details func(T) []field) error {
	var err error
	switch {
	case c.Bool("json"):
		err = t.printJSON(thing)
	case c.Bool("porcelain"):
		err = t.printBlock(c.Bool("z"), porcelain(thing))
	default:
		err = t.printFields(details(thing))
	}
	if err != nil {
		return err
	}
	return thing.Err()
}

// printBlock prints one block in the format of "git worktree list --porcelain". Without -z, a value that would break
// the line structure or control a terminal is quoted as git quotes paths.
func (t *tool) printBlock(z bool, fields []field) error {
	end := "\n"
	if z {
		end = "\x00"
	}
	var b strings.Builder
	for _, f := range fields {
		if f.optional && f.value == "" {
			continue
		}
		value := f.value
		if !z && needsQuoting(value) {
			value = quote.Path(value)
		}
		b.WriteString(f.key + " " + value + end)
	}
	_, err := t.stdout.WriteString(b.String() + end)
	return err
}

func needsQuoting(value string) bool {
	return strings.HasPrefix(value, `"`) || !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool { return !quote.IsPrintable(c) })
}

// printTable prints rows under a header, and nothing if there are no rows. On a terminal, the last column is cut at
// the end of the line.
func (t *tool) printTable(header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	style, err := t.outputStyle()
	if err != nil {
		return err
	}
	all := append([][]string{header}, rows...)
	return term.Grid{
		Rows:      all,
		EmptyCell: "-",
		MaxWidth:  style.Width,
		Paint: func(row, column int, shown string) string {
			if row == 0 {
				return style.Paint(term.HeaderColumn, shown, shown)
			}
			return style.Paint(header[column], all[row][column], shown)
		},
	}.Write(t.stdout)
}

// printFields prints the fields of one record, a line each. Nothing is cut, since this is the one place that shows all
// of it.
func (t *tool) printFields(fields []field) error {
	style, err := t.outputStyle()
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range fields {
		if f.value != "" {
			rows = append(rows, []string{f.key, f.value})
		}
	}
	return term.Grid{
		Rows: rows,
		Paint: func(row, column int, shown string) string {
			if column == 0 {
				return shown
			}
			return style.Paint(rows[row][0], rows[row][1], shown)
		},
	}.Write(t.stdout)
}
