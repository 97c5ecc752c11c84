package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/git-agency/git-agency/gitagency"
)

// style is how results are shown on the caller's standard output.
type style struct {
	color   bool
	links   bool    // whether paths are hyperlinks
	host    string  // host name in hyperlinks
	width   int     // columns of the terminal; 0 if unknown or no terminal
	pager   string  // command line of the pager to start; empty for none
	ignored []error // pager commands of the repository's own config that were ignored, to warn of
}

// decideStyle decides on colour, links, width and pager. It is called through t.outputStyle, once, before the first
// result is printed. Output for scripts never calls it, since it does not depend on the terminal.
func (t *tool) decideStyle() (style, error) {
	p := t.newColorPolicy()
	p.terminal, p.pager = isTerminal(t.rawStdout), t.pagerInUse()
	var settings gitagency.TerminalSettings
	if p.terminal || p.needsSetting() {
		var err error
		if settings, err = t.terminalSettings(); err != nil {
			return style{}, err
		}
	}
	paging := pagerPolicy{
		terminal: p.terminal, inUse: p.pager, setting: settings.Paging, program: settings.Pager, pageable: t.pageable,
	}.usePager()
	p.setting, p.colorInPager, p.pager = settings.Color, settings.ColorInPager, p.pager || paging

	l := style{color: p.useColor()}
	if p.terminal {
		l.width = terminalWidth(t.rawStdout)
	}
	if paging {
		l.pager, l.ignored = settings.Pager, settings.Ignored
	}
	// Not every pager passes OSC 8 links on.
	if l.links = l.color && p.terminal && !p.pager; l.links {
		l.host = hostname()
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
func (t *tool) showsOnTerminal() bool { return isTerminal(t.rawStdout) || t.pagerInUse() }

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

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the columns of a terminal, or 0 if they are unknown; nothing is cut then.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}
