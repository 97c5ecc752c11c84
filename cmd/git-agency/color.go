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

// palette is the list of all colours: the column of a table or the key of a field, the prefix of its text, and the SGR
// parameter. The first entry that matches counts. Ids and commits are yellow, as git's hashes are.
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

// Keys of the palette that are not columns.
const (
	headerColumn  = "the header of a table"
	messagePrefix = "the first word of a message"
)

// linkedColumns are the columns whose paths become hyperlinks.
var linkedColumns = []string{"path"}

// paint adds the colour and the hyperlink of a cell with this value to the text shown for it.
func (l style) paint(column, value, shown string) string {
	column = strings.ToLower(column)
	if l.links && value != "" && slices.Contains(linkedColumns, column) {
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

// hyperlink returns text as a hyperlink to target for terminals (OSC 8).
func hyperlink(target, text string) string {
	return "\x1b]8;;" + target + "\x1b\\" + text + "\x1b]8;;\x1b\\"
}

// fileURL includes the host name, since the terminal may be on another machine than the file.
func fileURL(host, path string) string {
	return (&url.URL{Scheme: "file", Host: host, Path: path}).String()
}

// colorPolicy is all that decides whether standard output, or standard error, is coloured.
type colorPolicy struct {
	flag         string // always, auto or never, by the last --color or --no-color; empty without one
	noColor      bool   // whether NO_COLOR is set and not empty
	setting      string // always, auto or never, by color.agency, else color.ui; empty without one
	terminal     bool   // whether the stream is a terminal
	pager        bool   // whether a pager shows the stream
	colorInPager bool   // value of color.pager
	dumb         bool   // whether TERM is unset, empty or "dumb"
}

// useColor decides by the command line, the environment, the configuration and the terminal, in that order.
func (p colorPolicy) useColor() bool {
	choice := p.flag
	if choice == "" && p.noColor {
		choice = "never"
	}
	if choice == "" {
		choice = p.setting
	}
	switch {
	case choice == "always":
		return true
	case choice == "never" || p.dumb:
		return false
	case p.pager:
		return p.colorInPager
	}
	return p.terminal
}

// needsSetting reports whether git's configuration can affect the decision.
func (p colorPolicy) needsSetting() bool { return p.flag == "" && !p.noColor }

// colorFlags returns --color and --no-color, which are accepted anywhere on the command line; the last one counts.
func (t *tool) colorFlags() []cli.Flag {
	return []cli.Flag{
		attachedValueFlag{&cli.GenericFlag{Name: "color", Value: &colorValue{t: t, implied: "always"}, Usage: "colour: --color=always (or --color alone), auto or never"}},
		attachedValueFlag{&cli.GenericFlag{Name: "no-color", Value: &colorValue{t: t, implied: "never"}, Usage: "no colour; the same as --color=never"}},
	}
}

// colorValue is the flag value of --color and --no-color; both set t.colorFlag.
type colorValue struct {
	t       *tool
	implied string // value of the flag if none is attached
}

// Set never returns an error, since urfave would reword it; checkColorFlag reports it.
func (v *colorValue) Set(value string) error {
	switch {
	case value == "true": // the flag package's value for a flag without one
		v.t.colorFlag = v.implied
	case v.implied == "never":
		v.t.colorFlagErr = errors.New("--no-color takes no value")
	case !slices.Contains([]string{"always", "auto", "never"}, value):
		v.t.colorFlagErr = fmt.Errorf("--color=%s: want always, auto or never", value)
	default:
		v.t.colorFlag = value
	}
	return nil
}

func (v *colorValue) String() string { return "" }

// IsBoolFlag keeps the flag package from taking the next word as the value.
func (v *colorValue) IsBoolFlag() bool { return true }

// checkColorFlag reports an invalid --color or --no-color as a usage error.
func (t *tool) checkColorFlag(c *cli.Context) error {
	if t.colorFlagErr != nil {
		return &usageError{err: t.colorFlagErr, usage: c.App.UsageText}
	}
	return nil
}

// printHint prints a hint on standard error.
func (t *tool) printHint(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.paintPrefix("hint:"), printable(message))
}

// warn prints a warning on standard error.
func (t *tool) warn(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.paintPrefix("warning:"), printable(message))
}

// paintPrefix returns the first word of a message, coloured if standard error is.
func (t *tool) paintPrefix(word string) string {
	return style{color: t.colorsMessages()}.paint(messagePrefix, word, word)
}

// colorsMessages reports whether messages are coloured. A configuration that cannot be read means no colour, so that
// it never keeps an error from being printed.
func (t *tool) colorsMessages() bool {
	if !isTerminal(t.rawStderr) {
		return false
	}
	p := t.newColorPolicy()
	p.terminal = true
	if p.needsSetting() {
		settings, err := t.terminalSettings()
		if err != nil {
			return false
		}
		p.setting = settings.Color
	}
	return p.useColor()
}

// newColorPolicy returns the part of a policy that needs neither the configuration nor the stream.
func (t *tool) newColorPolicy() colorPolicy {
	term := t.getenv("TERM")
	return colorPolicy{
		flag:    t.colorFlag,
		noColor: t.getenv("NO_COLOR") != "",
		dumb:    term == "" || term == "dumb",
	}
}

// hostname returns "", which means the local machine in a file URL, if the host name is unknown.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
