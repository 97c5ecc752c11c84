package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// OutputError reports that the result of a completed command could not be written.
type OutputError struct{ Err error }

func (e *OutputError) Error() string {
	return fmt.Sprintf("the command was carried out, but its result could not be written: %v", e.Err)
}

// WithJSONFlag adds --json to the flags of a command.
func WithJSONFlag(flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.BoolFlag{Name: "json", Usage: "print JSON"})
}

// WithListingFlags adds the flags of all stable output forms: --json, --porcelain and -z.
func WithListingFlags(flags ...cli.Flag) []cli.Flag {
	return append(WithJSONFlag(flags...),
		&cli.BoolFlag{Name: "porcelain", Usage: "print blocks of 'key value' lines for scripts"},
		&cli.BoolFlag{Name: "z", Usage: "with --porcelain, end lines with NUL instead of newline"})
}

// WithAbbrevFlag adds --no-abbrev to the flags of a command that prints ids of invocations in a table.
func WithAbbrevFlag(flags ...cli.Flag) []cli.Flag {
	return append(flags, &cli.BoolFlag{Name: "no-abbrev", Usage: "print full ids in the table, also on a terminal"})
}

// TableIDs returns a function that returns the id of an invocation as tables show it: short on a terminal, where people
// type it, unless --no-abbrev is given.
func (p *Program) TableIDs(c *cli.Context, repo *gitagency.Repository) (func(id string) string, error) {
	if c.Bool("no-abbrev") || !p.ShowsOnTerminal() {
		return func(id string) string { return id }, nil
	}
	return repo.Abbreviation()
}

// CheckListingArgs checks the command line of a listing, which takes output flags and no arguments.
func CheckListingArgs(c *cli.Context) error {
	if _, err := PositionalArgs(c, 0, 0); err != nil {
		return err
	}
	return CheckOutputFlags(c)
}

// CheckOutputFlags refuses output flags that contradict each other.
func CheckOutputFlags(c *cli.Context) error {
	switch {
	case c.Bool("json") && c.Bool("porcelain"):
		return NewUsageError(c, errors.New("--json and --porcelain exclude each other"))
	case c.IsSet("format") && (c.Bool("json") || c.Bool("porcelain")):
		return NewUsageError(c, errors.New("--format excludes --json and --porcelain"))
	case c.Bool("z") && !c.Bool("porcelain"):
		return NewUsageError(c, errors.New("-z needs --porcelain"))
	}
	return nil
}

// PrintJSON prints v as indented JSON.
func (p *Program) PrintJSON(v any) error { return format.WriteJSON(p.Stdout, v) }

// PrintLine prints one value on a line, for use by scripts: verbatim, except that on a terminal control characters are
// escaped.
func (p *Program) PrintLine(value string) error {
	if p.ShowsOnTerminal() {
		value = term.Printable(value)
	}
	_, err := fmt.Fprintln(p.Stdout, value)
	return err
}

// PrintPath prints the path of a record, also if it is broken, and returns broken.
func (p *Program) PrintPath(c *cli.Context, key, path string, broken error) error {
	if path == "" {
		return broken
	}
	var err error
	if c.Bool("json") {
		err = p.PrintJSON(map[string]string{key: path})
	} else {
		err = p.PrintLine(path)
	}
	if err != nil {
		return err
	}
	return broken
}

// Field is one line of a porcelain block. An optional field with an empty value prints no line.
type Field struct {
	Key, Value string
	Optional   bool
}

// PrintList prints records in the form that the flags ask for.
func PrintList[T any](p *Program, c *cli.Context, things []T, porcelain func(T) []Field, header []string, row func(T) []string, optional ...string) error {
	switch {
	case c.Bool("json"):
		return p.PrintJSON(things)
	case c.Bool("porcelain"):
		for _, thing := range things {
			if err := p.PrintBlock(c.Bool("z"), porcelain(thing)); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{}
	for _, thing := range things {
		rows = append(rows, row(thing))
	}
	return p.PrintTable(header, rows, optional...)
}

// PrintOne prints a record in the form that the flags ask for, also if it is broken, and returns its Err.
func PrintOne[T interface{ Err() error }](p *Program, c *cli.Context, thing T, porcelain, details func(T) []Field) error {
	var err error
	switch {
	case c.Bool("json"):
		err = p.PrintJSON(thing)
	case c.Bool("porcelain"):
		err = p.PrintBlock(c.Bool("z"), porcelain(thing))
	default:
		err = p.PrintFields(details(thing))
	}
	if err != nil {
		return err
	}
	return thing.Err()
}

// PrintBlock prints one block in the format of "git worktree list --porcelain". Without -z, a value that would break
// the line structure or control a terminal is quoted as git quotes paths.
func (p *Program) PrintBlock(z bool, fields []Field) error {
	end := "\n"
	if z {
		end = "\x00"
	}
	var b strings.Builder
	for _, f := range fields {
		if f.Optional && f.Value == "" {
			continue
		}
		value := f.Value
		if !z && needsQuoting(value) {
			value = quote.Path(value)
		}
		b.WriteString(f.Key + " " + value + end)
	}
	_, err := p.Stdout.WriteString(b.String() + end)
	return err
}

func needsQuoting(value string) bool {
	return strings.HasPrefix(value, `"`) || !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool { return !quote.IsPrintable(c) })
}

// PrintTable prints rows under a header, and nothing if there are no rows. On a terminal, columns called NAME, VALUE, FROM
// or PROBLEM are shortened if lines are too long; then the last column is wrapped if it is called MEANING, else cut at the
// end of the line, or, where optional columns are named, they are left out in this order until lines fit.
func (p *Program) PrintTable(header []string, rows [][]string, optional ...string) error {
	if len(rows) == 0 {
		return nil
	}
	style, err := p.Style()
	if err != nil {
		return err
	}
	all := append([][]string{header}, rows...)
	columns := func(name string) (found []int) { // several columns may have one name
		for i, column := range header {
			if column == name {
				found = append(found, i)
			}
		}
		return found
	}
	var omit []int
	for _, name := range optional {
		omit = append(omit, columns(name)...)
	}
	return term.Grid{
		Rows:      all,
		EmptyCell: "-",
		MaxWidth:  style.Width,
		Shortened: slices.Concat(columns("NAME"), columns("VALUE"), columns("FROM"), columns("PROBLEM")),
		Wrap:      header[len(header)-1] == "MEANING",
		Optional:  omit,
		Paint: func(row, column int, shown string) string {
			if row == 0 {
				return style.Paint(term.HeaderColumn, shown, shown)
			}
			return style.Paint(header[column], all[row][column], shown)
		},
	}.Write(p.Stdout)
}

// PrintRows prints rows without a header. Nothing is cut; on a terminal, the last column is wrapped. columns are the names by
// which their cells are coloured.
func (p *Program) PrintRows(columns []string, rows [][]string) error {
	style, err := p.Style()
	if err != nil {
		return err
	}
	return term.Grid{
		Rows:     rows,
		MaxWidth: style.Width,
		Wrap:     true,
		Paint: func(row, column int, shown string) string {
			return style.Paint(columns[column], rows[row][column], shown)
		},
	}.Write(p.Stdout)
}

// PrintFields prints the fields of one record, a line each. Nothing is cut, since this is the one place that shows all
// of it.
func (p *Program) PrintFields(fields []Field) error {
	style, err := p.Style()
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range fields {
		if f.Value != "" {
			rows = append(rows, []string{f.Key, f.Value})
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
	}.Write(p.Stdout)
}

// PrintConflicts prints the kinds and the path of each conflict, if err is about conflicts.
func (p *Program) PrintConflicts(err error) error {
	var conflicts *gitagency.ConflictsError
	if !errors.As(err, &conflicts) {
		return nil
	}
	for _, c := range conflicts.Conflicts {
		if err := p.PrintLine(strings.Join(c.Kinds, ",") + "\t" + quote.Path(c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// HintOutdated prints the commands that update submodules after commits for them have landed.
func (p *Program) HintOutdated(all []gitagency.OutdatedSubmodule) {
	for _, hint := range hints.OutdatedSubmodules(all) {
		p.PrintHint(hint)
	}
}
