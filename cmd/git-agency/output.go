package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
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
func (t *tool) printJSON(v any) error {
	enc := json.NewEncoder(t.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLargeJSON is printJSON for a flat struct with very long strings. It streams them, which avoids further copies
// of them in memory, escaped and indented.
func (t *tool) printLargeJSON(v any) error {
	object, kind := reflect.ValueOf(v), reflect.TypeOf(v)
	before := "{\n"
	for i := range kind.NumField() {
		name, option, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && object.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(t.stdout, "%s  %q: ", before, name)
		before = ",\n"
		if text, ok := object.Field(i).Interface().(string); ok {
			if err := writeJSONString(t.stdout, text); err != nil {
				return err
			}
			continue
		}
		data, err := json.Marshal(object.Field(i).Interface())
		if err != nil {
			return err
		}
		if _, err := t.stdout.Write(data); err != nil {
			return err
		}
	}
	_, err := t.stdout.WriteString("\n}\n")
	return err
}

// writeJSONString writes a JSON string in pieces, cut between characters.
func writeJSONString(w *bufio.Writer, text string) error {
	const piece = 32 << 10
	if err := w.WriteByte('"'); err != nil {
		return err
	}
	for len(text) > 0 {
		end := min(len(text), piece)
		for back := 0; end < len(text) && back < utf8.UTFMax && !utf8.RuneStart(text[end]); back++ {
			end--
		}
		var quoted bytes.Buffer
		enc := json.NewEncoder(&quoted)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text[:end]); err != nil {
			return err
		}
		if _, err := w.Write(quoted.Bytes()[1 : quoted.Len()-2]); err != nil { // without quotes and newline
			return err
		}
		text = text[end:]
	}
	return w.WriteByte('"')
}

// printLine prints one value verbatim on a line, for use by scripts.
func (t *tool) printLine(path string) error {
	_, err := fmt.Fprintln(t.stdout, path)
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
// the line structure is quoted as git quotes paths.
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
		if !z && (strings.ContainsFunc(value, unicode.IsControl) || strings.HasPrefix(value, `"`)) {
			value = cQuote(value)
		}
		b.WriteString(f.key + " " + value + end)
	}
	_, err := t.stdout.WriteString(b.String() + end)
	return err
}

// cQuote quotes a value as git quotes paths.
func cQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		at := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c)
		switch {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(`abtnvfr"\`[at])
		case c < 0x20 || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// printable escapes control and formatting characters, so that text from a record or message cannot control the
// terminal. It keeps newline and tab.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, isUnprintable) {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); c == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else if isUnprintable(c) {
			quoted := strconv.QuoteRune(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isUnprintable reports whether printable escapes a character.
func isUnprintable(c rune) bool {
	return c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c))
}

// ago formats for people how long ago a time was.
func ago(now, then time.Time) string {
	d := now.Sub(then)
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{365 * 24 * time.Hour, "year"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int(d / unit.size); n == 1 {
			return "1 " + unit.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("%d %ss ago", n, unit.name)
		}
	}
	return "now"
}
