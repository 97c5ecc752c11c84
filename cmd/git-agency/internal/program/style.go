package program

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

// Style is how results are shown on the caller's standard output.
type Style struct {
	term.Style
	pager   string  // command line of the pager to start; empty for none
	ignored []error // pager commands of the repository's own config that were ignored, to warn of
}

// Style returns how results are shown.
func (p *Program) Style() (Style, error) { return p.outputStyle() }

// decideStyle decides on colour, links, width and pager. It is called through p.Style, once, before the first
// result is printed. Output for scripts never calls it, since it does not depend on the terminal.
func (p *Program) decideStyle() (Style, error) {
	policy := p.newColorPolicy()
	policy.Terminal, policy.Pager = term.IsTerminal(p.RawStdout), p.pagerInUse()
	var settings gitagency.TerminalSettings
	if policy.Terminal || policy.NeedsSetting() {
		var err error
		if settings, err = p.terminalSettings(); err != nil {
			return Style{}, err
		}
	}
	paging := !p.unpaged && term.PagerPolicy{
		Terminal: policy.Terminal, InUse: policy.Pager, Setting: settings.Paging, Program: settings.Pager, Pageable: p.pageable,
	}.UsePager()
	policy.Setting, policy.ColorInPager, policy.Pager = settings.Color, settings.ColorInPager, policy.Pager || paging

	l := Style{Style: term.Style{Color: policy.UseColor()}}
	if policy.Terminal {
		l.Width = term.Width(p.RawStdout)
	}
	if paging {
		l.pager, l.ignored = settings.Pager, settings.Ignored
	}
	// Not every pager passes OSC 8 links on.
	if l.Links = l.Color && policy.Terminal && !policy.Pager; l.Links {
		l.Host = term.Hostname()
	}
	return l, nil
}

// readTerminalSettings returns git's settings of colour and pager, from the open repository if there is one, which has
// read them already.
func (p *Program) readTerminalSettings() (gitagency.TerminalSettings, error) {
	if p.repo != nil {
		return p.repo.TerminalSettings()
	}
	return gitagency.ReadTerminalSettings(p.ctx, p.Options)
}

// IgnoreSettingsErrors makes p.terminalSettings never fail, for 'config' and 'doctor', which report invalid settings.
func (p *Program) IgnoreSettingsErrors() {
	read := p.terminalSettings
	p.terminalSettings = func() (gitagency.TerminalSettings, error) {
		settings, _ := read() // the command itself reports invalid settings
		return settings, nil
	}
}

// ShowsOnTerminal reports whether results are shown on a terminal, directly or by git's pager.
func (p *Program) ShowsOnTerminal() bool { return term.IsTerminal(p.RawStdout) || p.pagerInUse() }

// pagerInUse reports whether git has started a pager in front of us, because of -p or pager.agency.
func (p *Program) pagerInUse() bool {
	value := p.Getenv("GIT_PAGER_IN_USE")
	n, err := strconv.Atoi(value)
	return err == nil && n != 0 || slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(value))
}

// Getenv returns a variable of the environment that the options name, or else of the process.
func (p *Program) Getenv(name string) string {
	if p.Options.Env == nil {
		return os.Getenv(name)
	}
	value := ""
	for _, kv := range p.Options.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// Now returns the time, by the clock of the options if they have one.
func (p *Program) Now() time.Time {
	if p.Options.Now != nil {
		return p.Options.Now()
	}
	return time.Now()
}

// checkColorFlag reports an invalid --color or --no-color as a usage error.
func (p *Program) checkColorFlag(c *cli.Context) error {
	if p.Color.Err != nil {
		return &UsageError{Err: p.Color.Err, Usage: c.App.UsageText}
	}
	return nil
}

// PrintHint prints a hint on standard error.
func (p *Program) PrintHint(message string) {
	fmt.Fprintf(p.Stderr, "%s %s\n", p.PaintPrefix("hint:"), term.Printable(message))
}

// Warn prints a warning on standard error.
func (p *Program) Warn(message string) {
	fmt.Fprintf(p.Stderr, "%s %s\n", p.PaintPrefix("warning:"), term.Printable(message))
}

// PaintPrefix returns the first word of a message, coloured if standard error is.
func (p *Program) PaintPrefix(word string) string {
	return p.messageStyle().Paint(term.MessagePrefix, word, word)
}

// PaintSuccess returns the words of a message that say what succeeded, coloured if standard error is.
func (p *Program) PaintSuccess(words string) string {
	return p.messageStyle().Paint(term.Success, words, words)
}

// PaintResult returns a text of a result, coloured if results are. A configuration that cannot be read means no colour,
// so that it never keeps the result from being printed.
func (p *Program) PaintResult(column, text string) string {
	style, err := p.Style()
	if err != nil {
		return text
	}
	return style.Paint(column, text, text)
}

// messageStyle returns how messages are shown.
func (p *Program) messageStyle() term.Style { return term.Style{Color: p.colorsMessages()} }

// colorsMessages reports whether messages are coloured. A configuration that cannot be read means no colour, so that
// it never keeps an error from being printed.
func (p *Program) colorsMessages() bool {
	if !term.IsTerminal(p.RawStderr) {
		return false
	}
	policy := p.newColorPolicy()
	policy.Terminal = true
	if policy.NeedsSetting() {
		settings, err := p.terminalSettings()
		if err != nil {
			return false
		}
		policy.Setting = settings.Color
	}
	return policy.UseColor()
}

// newColorPolicy returns the part of a policy that needs neither the configuration nor the stream.
func (p *Program) newColorPolicy() term.ColorPolicy {
	kind := p.Getenv("TERM")
	return term.ColorPolicy{
		Flag:    p.Color.Value,
		NoColor: p.Getenv("NO_COLOR") != "",
		Dumb:    kind == "" || kind == "dumb",
	}
}
