package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// palette is every colour there is: the column of a table or the key of a line, how the text begins,
// and the number by which terminals know the colour. The first that fits is taken. Ids and commits are
// yellow, as git has its hashes.
var palette = []struct{ column, begins, sgr string }{
	{headerColumn, "", "1"},
	{"id", "", "33"},
	{"invocation", "", "33"},
	{"base", "", "33"},
	{"commit", "", "33"},
	{"status", "broken", "31"},
	{"state", "broken", "31"},
	{"broken", "", "31"},
	{"status", "active", "32"},
	{"state", "present", "32"},
	{"status", "review", "36"},
	{"landing", "review", "36"},
	{"status", "rejected", "35"},
	{"landing", "rejected", "35"},
	{"submitted-commit", "", "33"},
	{"landed-commit", "", "33"},
	{"unlanded-commit", "", "33"},
	{"status", "landed", "2"},
	{"status", "discarded", "2"},
	{"landing", "landed", "2"},
	{"landing", "discarded", "2"},
	{"state", "archived", "2"},
	{"radar", "clean", "32"},
	{"radar", "rivals", "33"},
	{"radar", "nothing", "2"},
	{"radar", "", "31"},
	{"conflicts with", "", "33"},
	{messagePrefix, "hint", "33"},
	{messagePrefix, "warning", "33"},
}

// Two places that are not columns.
const (
	headerColumn  = "the header of a table"
	messagePrefix = "the first word of a message"
)

// linked are the columns that hold the path of something.
var linked = []string{"path"}

// paint adds the colour and the link of a cell to what is shown of it.
func (l look) paint(column, value, shown string) string {
	column = strings.ToLower(column)
	if l.links && value != "" && slices.Contains(linked, column) {
		shown = hyperlink(fileURL(l.host, value), shown)
	}
	if l.color && value != "" {
		for _, p := range palette {
			if p.column == column && strings.HasPrefix(value, p.begins) {
				return "\x1b[" + p.sgr + "m" + shown + "\x1b[m"
			}
		}
	}
	return shown
}

// hyperlink makes text that terminals let one click at (OSC 8).
func hyperlink(target, text string) string {
	return "\x1b]8;;" + target + "\x1b\\" + text + "\x1b]8;;\x1b\\"
}

// fileURL names the host, since the terminal may not be where the file is.
func fileURL(host, path string) string {
	return (&url.URL{Scheme: "file", Host: host, Path: path}).String()
}

// colorQuestion is all that decides about colour, for one of our two streams.
type colorQuestion struct {
	flag         string // always, auto or never: the last --color or --no-color; empty without any
	noColor      bool   // NO_COLOR is not empty
	setting      string // always, auto or never: color.agency, else color.ui; empty without any
	terminal     bool   // the stream is a terminal
	pager        bool   // a pager stands in front of the terminal
	colorInPager bool   // color.pager
	dumb         bool   // TERM says that the terminal can do nothing
}

// answer decides: the command line, the environment, the configuration, and then what is there.
func (q colorQuestion) answer() bool {
	choice := q.flag
	if choice == "" && q.noColor {
		choice = "never"
	}
	if choice == "" {
		choice = q.setting
	}
	switch {
	case choice == "always":
		return true
	case choice == "never" || q.dumb:
		return false
	case q.pager:
		return q.colorInPager
	}
	return q.terminal
}

// needsSetting reports whether the configuration has a say.
func (q colorQuestion) needsSetting() bool { return q.flag == "" && !q.noColor }

// colorFlags are understood anywhere on the command line; the last one counts.
func (t *tool) colorFlags() []cli.Flag {
	return []cli.Flag{
		attachedFlag{&cli.GenericFlag{Name: "color", Value: &colorValue{t: t, bare: "always"}, Usage: "colour: --color=always (or --color alone), auto or never"}},
		attachedFlag{&cli.GenericFlag{Name: "no-color", Value: &colorValue{t: t, bare: "never"}, Usage: "no colour; the same as --color=never"}},
	}
}

// colorValue is what --color and --no-color both write to.
type colorValue struct {
	t    *tool
	bare string // what the flag means without a value
}

// Set never fails: urfave would word the error in its own way. See checkColorFlag.
func (v *colorValue) Set(value string) error {
	switch {
	case value == "true": // the flag package's word for no value at all
		v.t.color = v.bare
	case v.bare == "never":
		v.t.badColor = errors.New("--no-color takes no value")
	case !slices.Contains([]string{"always", "auto", "never"}, value):
		v.t.badColor = fmt.Errorf("--color=%s: want always, auto or never", value)
	default:
		v.t.color = value
	}
	return nil
}

func (v *colorValue) String() string { return "" }

// IsBoolFlag keeps the flag package from taking the next word for the value.
func (v *colorValue) IsBoolFlag() bool { return true }

func (t *tool) checkColorFlag(c *cli.Context) error {
	if t.badColor != nil {
		return &usageError{err: t.badColor, usage: c.App.UsageText}
	}
	return nil
}

// warn says something that is not an error.
func (t *tool) hint(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.prefix("hint:"), printable(message))
}

func (t *tool) warn(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.prefix("warning:"), printable(message))
}

// prefix is the first word of a message, in colour where messages are read by people who want that.
func (t *tool) prefix(word string) string {
	return look{color: t.colorsMessages()}.paint(messagePrefix, word, word)
}

// colorsMessages: what goes wrong with the configuration must not keep an error from being told.
func (t *tool) colorsMessages() bool {
	if !isTerminal(t.messages) {
		return false
	}
	q := t.colorQuestion()
	q.terminal = true
	if q.needsSetting() {
		settings, err := t.settings()
		if err != nil {
			return false
		}
		q.setting = settings.Color
	}
	return q.answer()
}

// colorQuestion is what needs no look at the configuration.
func (t *tool) colorQuestion() colorQuestion {
	term := t.getenv("TERM")
	return colorQuestion{
		flag:    t.color,
		noColor: t.getenv("NO_COLOR") != "",
		dumb:    term == "" || term == "dumb",
	}
}

// hostname is empty, which means "here", where the machine does not know.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
