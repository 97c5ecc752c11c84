package gitagency

import (
	"context"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Key is one of git-agency's keys in git config.
type Key = settings.Key

// Keys lists every key, in the order in which users meet them.
func Keys() []Key {
	return settings.Keys()
}

// Setting is the effective value of a key, or its default.
type Setting = settings.Setting

// Strategies lists the names of the landing strategies, the default first.
func Strategies() []string {
	return settings.Strategies()
}

// Default timeouts.
const (
	DefaultOperationTimeout = settings.DefaultOperationTimeout // for one command, one upload or one snapshot
	DefaultRunTimeout       = settings.DefaultRunTimeout       // for a run of an agent, from its start to its end
)

// ParseDuration parses a Go duration ("30s", "2m"); a bare 0 is zero and -1 means no limit.
func ParseDuration(s string) (time.Duration, error) {
	return settings.ParseDuration(s)
}

// ParseTimeout parses a duration that must not be zero; -1 means no limit.
func ParseTimeout(s string) (time.Duration, error) {
	return settings.ParseTimeout(s)
}

// TerminalSettings are the settings for output on a terminal, from git's configuration and the environment. Only the
// caller knows whether there is a terminal, and what the command line says.
type TerminalSettings = settings.Terminal

// OperationTimeout returns the time limit of one operation in a sandbox.
func (r *Repository) OperationTimeout() (time.Duration, error) {
	return r.core.Settings.OperationTimeout()
}

// RunTimeout returns the time limit of a run of an agent.
func (r *Repository) RunTimeout() (time.Duration, error) { return r.core.Settings.RunTimeout() }

// SecretPatterns lists the name patterns of untracked files that snapshots leave out.
func (r *Repository) SecretPatterns() []string { return r.core.Settings.SecretPatterns() }

// Profiles lists the profiles that a sandbox can be started with, in alphabetical order.
func (r *Repository) Profiles() []string { return r.core.Settings.Profiles() }

// TerminalSettings returns the settings from the configuration that was read when the repository was opened.
func (r *Repository) TerminalSettings() (TerminalSettings, error) {
	return r.core.Settings.TerminalSettings()
}

// DiffColors returns the colours of diffs.
func (r *Repository) DiffColors() (DiffColors, error) { return r.core.Settings.DiffColors() }

// DefersCleanup reports whether the clean-up after a landing runs in the background.
func (r *Repository) DefersCleanup() (bool, error) { return r.core.Settings.DefersCleanup() }

// Settings lists every key with its effective value, followed by the values that are set and ignored. It needs no
// repository.
func Settings(ctx context.Context, opts Options) ([]Setting, error) {
	opts, err := opts.WithDefaults()
	if err != nil {
		return nil, err
	}
	return settings.List(ctx, opts.Dir, opts.Env)
}

// ReadTerminalSettings reads the settings; it needs no repository.
func ReadTerminalSettings(ctx context.Context, opts Options) (TerminalSettings, error) {
	opts, err := opts.WithDefaults()
	if err != nil {
		return TerminalSettings{}, err
	}
	return settings.ReadTerminal(ctx, opts.Dir, opts.Env)
}
