package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// style is how results are shown on the caller's standard output.
type style struct {
	term.Style
	pager   string  // command line of the pager to start; empty for none
	ignored []error // pager commands of the repository's own config that were ignored, to warn of
}

// decideStyle decides on colour, links, width and pager. It is called through t.outputStyle, once, before the first
// result is printed. Output for scripts never calls it, since it does not depend on the terminal.
func (t *tool) decideStyle() (style, error) {
	p := t.newColorPolicy()
	p.Terminal, p.Pager = term.IsTerminal(t.rawStdout), t.pagerInUse()
	var settings gitagency.TerminalSettings
	if p.Terminal || p.NeedsSetting() {
		var err error
		if settings, err = t.terminalSettings(); err != nil {
			return style{}, err
		}
	}
	paging := term.PagerPolicy{
		Terminal: p.Terminal, InUse: p.Pager, Setting: settings.Paging, Program: settings.Pager, Pageable: t.pageable,
	}.UsePager()
	p.Setting, p.ColorInPager, p.Pager = settings.Color, settings.ColorInPager, p.Pager || paging

	l := style{Style: term.Style{Color: p.UseColor()}}
	if p.Terminal {
		l.Width = term.Width(t.rawStdout)
	}
	if paging {
		l.pager, l.ignored = settings.Pager, settings.Ignored
	}
	// Not every pager passes OSC 8 links on.
	if l.Links = l.Color && p.Terminal && !p.Pager; l.Links {
		l.Host = term.Hostname()
	}
	return l, nil
}

// readTerminalSettings returns git's settings of colour and pager, from the open repository if there is one, which has
// read them already.
func (t *tool) readTerminalSettings() (gitagency.TerminalSettings, error) {
	if t.repo != nil {
		return t.repo.TerminalSettings()
	}
	return gitagency.ReadTerminalSettings(t.ctx, t.opts)
}

// ignoreSettingsErrors makes t.terminalSettings never fail, for 'config', which has to list invalid settings.
func (t *tool) ignoreSettingsErrors() {
	read := t.terminalSettings
	t.terminalSettings = func() (gitagency.TerminalSettings, error) {
		settings, _ := read() // 'config' itself lists invalid settings
		return settings, nil
	}
}

// showsOnTerminal reports whether results are shown on a terminal, directly or by git's pager.
func (t *tool) showsOnTerminal() bool { return term.IsTerminal(t.rawStdout) || t.pagerInUse() }

// pagerInUse reports whether git has started a pager in front of us, because of -p or pager.agency.
func (t *tool) pagerInUse() bool {
	value := t.getenv("GIT_PAGER_IN_USE")
	n, err := strconv.Atoi(value)
	return err == nil && n != 0 || slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(value))
}

func (t *tool) getenv(name string) string {
	if t.opts.Env == nil {
		return os.Getenv(name)
	}
	value := ""
	for _, kv := range t.opts.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

func (t *tool) now() time.Time {
	if t.opts.Now != nil {
		return t.opts.Now()
	}
	return time.Now()
}

// checkColorFlag reports an invalid --color or --no-color as a usage error.
func (t *tool) checkColorFlag(c *cli.Context) error {
	if t.color.Err != nil {
		return &usageError{err: t.color.Err, usage: c.App.UsageText}
	}
	return nil
}

// printHint prints a hint on standard error.
func (t *tool) printHint(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.paintPrefix("hint:"), term.Printable(message))
}

// warn prints a warning on standard error.
func (t *tool) warn(message string) {
	fmt.Fprintf(t.stderr, "%s %s\n", t.paintPrefix("warning:"), term.Printable(message))
}

// paintPrefix returns the first word of a message, coloured if standard error is.
func (t *tool) paintPrefix(word string) string {
	return term.Style{Color: t.colorsMessages()}.Paint(term.MessagePrefix, word, word)
}

// colorsMessages reports whether messages are coloured. A configuration that cannot be read means no colour, so that
// it never keeps an error from being printed.
func (t *tool) colorsMessages() bool {
	if !term.IsTerminal(t.rawStderr) {
		return false
	}
	p := t.newColorPolicy()
	p.Terminal = true
	if p.NeedsSetting() {
		settings, err := t.terminalSettings()
		if err != nil {
			return false
		}
		p.Setting = settings.Color
	}
	return p.UseColor()
}

// newColorPolicy returns the part of a policy that needs neither the configuration nor the stream.
func (t *tool) newColorPolicy() term.ColorPolicy {
	kind := t.getenv("TERM")
	return term.ColorPolicy{
		Flag:    t.color.Value,
		NoColor: t.getenv("NO_COLOR") != "",
		Dumb:    kind == "" || kind == "dumb",
	}
}
