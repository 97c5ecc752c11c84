package settings

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Terminal holds the settings for output on a terminal, from git's configuration and the environment. Only the
// caller knows whether there is a terminal, and what the command line says.
type Terminal struct {
	Color        string // always, auto or never: color.agency, else color.ui; empty when neither is set
	ColorInPager bool   // color.pager: whether the pager can show colour

	Paging string // always or never: pager.agency; empty when it is not set
	Pager  string // command line of the pager; empty for none

	// Ignored lists the pager commands in the repository's own config that were ignored, if one of them would have
	// been used.
	Ignored []error
}

// ReadTerminal reads the settings; it needs no repository.
func ReadTerminal(ctx context.Context, dir string, env []string) (Terminal, error) {
	config, err := git.ReadConfig(ctx, dir, env)
	if err != nil {
		return Terminal{}, err
	}
	return parseTerminalSettings(config, env)
}

// TerminalSettings returns the settings from the configuration that was read when the repository was opened.
func (r *Reader) TerminalSettings() (Terminal, error) {
	return parseTerminalSettings(r.Config, r.Env)
}

func parseTerminalSettings(config config.Settings, env []string) (t Terminal, err error) {
	if t.Color, err = colorSetting(config); err != nil {
		return t, err
	}
	t.ColorInPager = true
	if s, set := config.Last("color.pager"); set {
		yes, ok := parseBool(s.Value)
		if !ok {
			return t, InvalidSetting("color.pager", s, "true or false")
		}
		t.ColorInPager = yes
	}

	own, ownSet, ownIgnored := config.LastTrusted("pager.agency", isPagerSwitch)
	core, coreSet, coreIgnored := config.LastTrusted("core.pager", isNoPager)
	page, isBool := parseBool(own.Value)
	switch {
	case ownSet && isBool && !page:
		t.Paging = "never"
	case ownSet:
		t.Paging = "always"
	}
	switch {
	case hasVariable(env, "GIT_PAGER"):
		t.Pager = proc.Getenv(env, "GIT_PAGER")
	case ownSet && !isBool:
		t.Pager, t.Ignored = own.Value, ignoredSettingErrors("pager.agency", ownIgnored)
	default:
		t.Ignored = append(ignoredSettingErrors("pager.agency", ownIgnored), ignoredSettingErrors("core.pager", coreIgnored)...)
		switch {
		case coreSet:
			t.Pager = core.Value
		case hasVariable(env, "PAGER"):
			t.Pager = proc.Getenv(env, "PAGER")
		default:
			t.Pager = "less"
		}
	}
	if isNoPager(t.Pager) {
		t.Pager = ""
	}
	return t, nil
}

// isPagerSwitch reports whether a value of pager.agency switches paging on or off without naming a program. Such a
// value counts from every scope; a program does not.
func isPagerSwitch(value string) bool {
	_, isBool := parseBool(value)
	return isBool || isNoPager(value)
}

// isNoPager reports whether a pager command means no pager, as in git.
func isNoPager(command string) bool { return command == "" || command == "cat" }

// colorSetting returns color.agency, else color.ui. As in git, any other value than always, auto and never must be a
// boolean; an invalid one is an error.
func colorSetting(config config.Settings) (string, error) {
	for _, key := range []string{"color.agency", "color.ui"} {
		s, set := config.Last(key)
		if !set {
			continue
		}
		color, ok := parseColor(s.Value)
		if !ok {
			return "", InvalidSetting(key, s, wantColor)
		}
		return color, nil
	}
	return "", nil
}

const wantColor = "always, auto or never"

func parseColor(value string) (color string, ok bool) {
	word := strings.ToLower(value)
	if slices.Contains([]string{"always", "auto", "never"}, word) {
		return word, true
	}
	yes, ok := parseBool(value)
	if yes {
		return "auto", ok
	}
	return "never", ok
}

func checkColor(value string) error {
	if _, ok := parseColor(value); !ok {
		return &fault.InvalidError{What: "colour", Value: value, Want: wantColor}
	}
	return nil
}

// ignoredSettingErrors returns an error for each pager command that is ignored because of its scope.
func ignoredSettingErrors(key string, settings []config.Setting) []error {
	var errs []error
	for _, s := range settings {
		errs = append(errs, &SettingError{Setting{Key: key, Value: s.Value, Scope: s.Scope, Origin: s.Origin, Problem: CommandRefusal(s)}})
	}
	return errs
}

// parseBool parses a boolean as git does: some words, any number, and the empty value for false.
func parseBool(value string) (yes, ok bool) {
	switch strings.ToLower(value) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off", "":
		return false, true
	}
	n, err := strconv.Atoi(value)
	return n != 0, err == nil
}

// hasVariable reports whether a variable is set, also to the empty value.
func hasVariable(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}
