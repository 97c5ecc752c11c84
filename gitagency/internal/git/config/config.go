// Package config parses git configuration: the output of git config and the files themselves. It owns the one list of
// the keys that this program reads, and tells by scope which settings only the user can have made. It must never run
// git or open a file; its callers decide where untrusted settings may be used.
package config

import (
	"fmt"
	"strings"
)

// Settings holds the settings that git-agency uses, read once in the environment of the caller: "git -c agency.x=y
// agency …" arrives in a variable that is scrubbed later. A key has all its values, in the order in which git reads
// them. Keys are spelled as git prints them: in lower case except for the subsection.
type Settings map[string][]Setting

// Setting is one value and its origin.
type Setting struct {
	Value   string
	Scope   string // system, global, local, worktree or command
	Origin  string // e.g. file:/home/me/.gitconfig
	NoValue bool   // the key has no value, which git takes for true
}

// Trusted reports whether the setting comes from the user: a program that can only write to the repository cannot
// have made it.
func (s Setting) Trusted() bool {
	return s.Scope == "system" || s.Scope == "global" || s.Scope == "command"
}

// Last returns the effective setting: the last one, as in git.
func (c Settings) Last(key string) (Setting, bool) {
	all := c[key]
	if len(all) == 0 {
		return Setting{}, false
	}
	return all[len(all)-1], true
}

// Value returns the value of the last setting; empty when there is none.
func (c Settings) Value(key string) string {
	s, _ := c.Last(key)
	return s.Value
}

// LastTrusted returns the effective setting of a key that may name a program: the last one that has a value and is
// trusted, or whose value is harmless in any case; harmless may be nil. others are the settings
// after it that were refused.
func (c Settings) LastTrusted(key string, harmless func(value string) bool) (setting Setting, ok bool, others []Setting) {
	for _, s := range c[key] {
		if s.Trusted() && !s.NoValue || harmless != nil && harmless(s.Value) {
			setting, ok, others = s, true, nil
		} else {
			others = append(others, s)
		}
	}
	return setting, ok, others
}

// ParseSettings reads "scope NUL origin NUL key LF value NUL" records; a key without a value, which git takes as
// true, has no LF.
func ParseSettings(out string) (Settings, error) {
	config := Settings{}
	fields := strings.Split(out, "\x00")
	for len(fields) >= 3 {
		key, value, hasValue := strings.Cut(fields[2], "\n")
		if !hasValue {
			value = "true"
		}
		origin := fields[1]
		if fields[0] == "command" {
			origin = strings.TrimSuffix(origin, ":") // of "command line:", which names no file
		}
		config[key] = append(config[key], Setting{Value: value, Scope: fields[0], Origin: origin, NoValue: !hasValue})
		fields = fields[3:]
	}
	if len(fields) != 1 || fields[0] != "" {
		return nil, fmt.Errorf("git config answered %q", out)
	}
	return config, nil
}
