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

// look is how results appear to whoever asked for them.
type look struct {
	color   bool
	links   bool   // paths can be clicked at
	host    string // that paths are on, for links
	width   int    // of the terminal; 0 when there is none
	pager   string // to show everything with; empty for none
	ignored []error
}

// decideLook is asked through t.look, once, when the first result is about to be printed. Results that
// are the same for everybody never ask.
func (t *tool) decideLook() (look, error) {
	q := t.colorQuestion()
	q.terminal, q.pager = isTerminal(t.results), t.pagerInUse()
	var settings gitagency.TerminalSettings
	if q.terminal || q.needsSetting() {
		var err error
		if settings, err = t.settings(); err != nil {
			return look{}, err
		}
	}
	paging := pagerQuestion{
		terminal: q.terminal, inUse: q.pager, setting: settings.Paging, program: settings.Pager, listing: t.pages,
	}.answer()
	q.setting, q.colorInPager, q.pager = settings.Color, settings.ColorInPager, q.pager || paging

	l := look{color: q.answer()}
	if q.terminal {
		l.width = width(t.results)
	}
	if paging {
		l.pager, l.ignored = settings.Pager, settings.Ignored
	}
	// Not every pager lets links through.
	if l.links = l.color && q.terminal && !q.pager; l.links {
		l.host = hostname()
	}
	return l, nil
}

// readSettings reads what git's configuration says about colour and pagers, unless a repository was
// opened, which has read it already.
func (t *tool) readSettings() (gitagency.TerminalSettings, error) {
	if t.repo != nil {
		return t.repo.TerminalSettings()
	}
	return gitagency.ReadTerminalSettings(t.ctx, t.opts)
}

// forgiveSettings is for the command that shows what is wrong with them, and must not fail for it.
func (t *tool) forgiveSettings() {
	read := t.settings
	t.settings = func() (gitagency.TerminalSettings, error) {
		settings, err := read()
		t.settings = func() (gitagency.TerminalSettings, error) { return settings, nil } // a warning asks too
		if err != nil {
			t.warn(err.Error())
		}
		return settings, nil
	}
}

// watched reports whether a person is at the other end, if need be behind a pager.
func (t *tool) watched() bool { return isTerminal(t.results) || t.pagerInUse() }

// pagerInUse: git has started a pager in front of us, by -p or pager.agency.
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

// width is 0 for a terminal that does not say; nothing is cut then.
func width(w io.Writer) int {
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
