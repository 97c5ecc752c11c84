package gitagency

import (
	"context"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Setting is the effective value of a key in git config, or its default.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Scope   string `json:"scope"`  // system, global, local, worktree, command, environment or default
	Origin  string `json:"origin"` // e.g. file:/home/me/.gitconfig; empty for a default
	Meaning string `json:"meaning"`
	Problem string `json:"problem"` // reason why the value is ignored or invalid; empty for a valid one
}

func newSetting(s settings.Setting) Setting { return Setting(s) }

// Err returns a *SettingError with the Problem of the setting, or nil if there is none.
func (s Setting) Err() error { return publicError(settings.Setting(s).Err()) }

// Settings lists every key with its effective value, in the order in which users meet them, followed by the values that
// are set and ignored. It needs no repository.
func Settings(ctx context.Context, opts Options) ([]Setting, error) {
	o, err := opts.internal().WithDefaults()
	if err != nil {
		return nil, publicError(err)
	}
	all, err := settings.List(ctx, o.Dir, o.Env)
	return convertAll(all, newSetting), publicError(err)
}

// Strategies lists the names of the landing strategies, the default first.
func Strategies() []string { return settings.Strategies() }

// RunTimeout returns the time limit of a run of an agent: agency.runTimeout, else DefaultRunTimeout. Negative is no limit.
func (r *Repository) RunTimeout() (time.Duration, error) { return edge(r.core.Settings.RunTimeout()) }

// Profiles lists the profiles that a sandbox can be started with, in alphabetical order.
func (r *Repository) Profiles() []string { return r.core.Settings.Profiles() }

// Runners lists the agents that a sandbox can be started for, known and configured ones, in alphabetical order.
func (r *Repository) Runners() []string { return r.core.Settings.Runners() }

// Default timeouts.
const (
	DefaultOperationTimeout = settings.DefaultOperationTimeout // for one command, one upload or one snapshot
	DefaultRunTimeout       = settings.DefaultRunTimeout       // for a run of an agent, from its start to its end
)

// ParseDuration parses a Go duration ("30s", "2m"); a bare 0 is zero and -1 means no limit.
func ParseDuration(s string) (time.Duration, error) { return edge(settings.ParseDuration(s)) }

// TerminalSettings are the settings for output on a terminal, from git's configuration and the environment. Only the
// caller knows whether there is a terminal, and what the command line says.
type TerminalSettings struct {
	Color        string // always, auto or never: color.agency, else color.ui; empty when neither is set
	ColorInPager bool   // color.pager: whether the pager can show colour

	Paging string // always or never: pager.agency; empty when it is not set
	Pager  string // command line of the pager; empty for none

	// Ignored lists the pager commands in the repository's own config that were ignored, if one of them would have
	// been used.
	Ignored []error
}

func newTerminalSettings(t settings.Terminal) TerminalSettings {
	return TerminalSettings{Color: t.Color, ColorInPager: t.ColorInPager, Paging: t.Paging, Pager: t.Pager, Ignored: convertAll(t.Ignored, publicError)}
}

// TerminalSettings returns the settings from the configuration that was read when the repository was opened.
func (r *Repository) TerminalSettings() (TerminalSettings, error) {
	t, err := r.core.Settings.TerminalSettings()
	return newTerminalSettings(t), publicError(err)
}

// ReadTerminalSettings reads the settings; it needs no repository.
func ReadTerminalSettings(ctx context.Context, opts Options) (TerminalSettings, error) {
	o, err := opts.internal().WithDefaults()
	if err != nil {
		return TerminalSettings{}, publicError(err)
	}
	t, err := settings.ReadTerminal(ctx, o.Dir, o.Env)
	return newTerminalSettings(t), publicError(err)
}
