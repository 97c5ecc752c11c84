package git

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config holds the settings the tool cares about, read once in the environment the caller gave:
// "git -c agency.x=y agency …" arrives in a variable that is scrubbed later. A key has all that was set
// for it, in the order in which git reads it. Keys are spelled as git prints them: in lower case but for
// what stands between the dots.
type Config map[string][]Setting

// Setting is one value and where it came from.
type Setting struct {
	Value  string
	Scope  string // system, global, local, worktree or command
	Origin string // e.g. file:/home/me/.gitconfig
	Bare   bool   // the key stands there without a value, which git takes for true
}

// Trusted: only the user can have made it, and nobody who can merely write to the repository.
func (s Setting) Trusted() bool {
	return s.Scope == "system" || s.Scope == "global" || s.Scope == "command"
}

// Last is the setting that counts, as in git.
func (c Config) Last(key string) (Setting, bool) {
	all := c[key]
	if len(all) == 0 {
		return Setting{}, false
	}
	return all[len(all)-1], true
}

// Value is the value of the last setting; empty when there is none.
func (c Config) Value(key string) string {
	s, _ := c.Last(key)
	return s.Value
}

// Trusted is the last setting that counts for a key that may name a program: one with a value that only the
// user can have made, or one that is harmless whoever made it; harmless may be nil. others are those that
// would have counted instead: anybody could be behind them who can write to the repository.
func (c Config) Trusted(key string, harmless func(value string) bool) (setting Setting, ok bool, others []Setting) {
	for _, s := range c[key] {
		if s.Trusted() && !s.Bare || harmless != nil && harmless(s.Value) {
			setting, ok, others = s, true, nil
		} else {
			others = append(others, s)
		}
	}
	return setting, ok, others
}

// keys are the settings read: our own, and those of git's that change what we do.
const keys = `^(agency\..*|color\.(agency|ui|pager|diff\.(context|plain|meta|frag|func|old|new))|pager\.agency|checkout\.workers|(user|author|committer)\.(name|email)|attr\.tree|core\.(bare|worktree|pager|repositoryformatversion|attributesfile|autocrlf|bigfilethreshold|checkroundtripencoding|checkstat|eol|excludesfile|filemode|ignorecase|precomposeunicode|sharedrepository|symlinks|trustctime)|extensions\.(objectformat|worktreeconfig)|includeif\..*\.path|i18n\.commitencoding|lfs\.storage|filter\..*\.(clean|smudge|process|required)|merge\..*\.(driver|name|recursive)|merge\.(directoryrenames|renamelimit|renames|renormalize)|diff\.(renamelimit|renames))$`

// wantedKey says the same of one key.
func wantedKey(key string) bool {
	switch key {
	case "color.agency", "color.ui", "color.pager", "pager.agency", "checkout.workers", "core.bare", "core.worktree", "core.pager", "attr.tree", formatVersion, objectFormat, worktreeConfig, lfsStorage, commitEncoding:
		return true
	}
	if who, what, _ := strings.Cut(key, "."); slices.Contains(persons, who) && (what == "name" || what == "email") {
		return true
	}
	if slot, is := strings.CutPrefix(key, "color.diff."); is {
		return slices.Contains(diffSlots, slot)
	}
	if _, is := driverOf(key); is || slices.Contains(merging, key) {
		return true
	}
	if strings.HasPrefix(key, includeIf) {
		return includes(key)
	}
	_, filters := filterOf(key)
	return filters || strings.HasPrefix(key, "agency.") || slices.Contains(carried, key)
}

// filterOf is the filter that a setting is about.
func filterOf(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "filter.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || name[end+1:] != "required" && !slices.Contains(drivers, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// merging are the settings that say what becomes of a merge.
var merging = []string{"merge.directoryrenames", "merge.renamelimit", "merge.renames", "merge.renormalize", "diff.renamelimit", "diff.renames"}

// persons are whose name and email can be set.
var persons = []string{"user", "author", "committer"}

// diffSlots are what in a difference can have a colour.
var diffSlots = []string{"context", "plain", "meta", "frag", "func", "old", "new"}

// drivers are what a filter can run.
var drivers = []string{"clean", "smudge", "process"}

// formatVersion is what every repository sets.
const formatVersion = "core.repositoryformatversion"

// ReadConfig reads the settings that hold in a directory, which need not be in a repository.
func ReadConfig(ctx context.Context, dir string, env []string) (Config, error) {
	return readConfig(ctx, runner{dir: dir, env: append(plain(env), "LC_ALL=C")})
}

func readConfig(ctx context.Context, run runner) (Config, error) {
	config, _, err := run.settings(ctx)
	return config, err
}

// settings are those that hold, and what git said while it read them.
func (r runner) settings(ctx context.Context) (_ Config, said string, err error) {
	out, errOut, err := r.both(ctx, nil, []string{"config", "-z", "--show-scope", "--show-origin", "--get-regexp", keys})
	if exitedWith(err, 1) {
		return Config{}, string(errOut), nil // none is set
	}
	if err != nil {
		return nil, "", err
	}
	config, err := parseConfig(string(out))
	return config, string(errOut), err
}

// parseConfig reads "scope NUL origin NUL key LF value NUL" records; a key without a value, which
// git takes as true, has no LF.
func parseConfig(out string) (Config, error) {
	config := Config{}
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
		config[key] = append(config[key], Setting{Value: value, Scope: fields[0], Origin: origin, Bare: !hasValue})
		fields = fields[3:]
	}
	if len(fields) != 1 || fields[0] != "" {
		return nil, fmt.Errorf("git config answered %q", out)
	}
	return config, nil
}

// Expiry reads a moment as git reads those before which things expire: "2.weeks.ago", "now", "never"
// or a date. Nothing expires at the zero time, which is "never". ok is false when git cannot read it.
func Expiry(ctx context.Context, dir string, env []string, text string) (at time.Time, ok bool, err error) {
	run := runner{dir: dir, env: append(plain(env), "LC_ALL=C")}
	// The default is converted like a value; a key that nobody can write lets nothing else answer.
	out, err := run.git(ctx, "config", "--type=expiry-date", "--default", text, "--get", "agency.\x01.unset")
	if exitedWith(err, 128) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	seconds, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)
	switch {
	case err != nil:
		return time.Time{}, false, fmt.Errorf("git config answered %q", out)
	case seconds == 0:
		return time.Time{}, true, nil
	case seconds > math.MaxInt32*1000: // what git says for "now" is later than anything
		return time.Now(), true, nil
	}
	return time.Unix(int64(seconds), 0), true, nil
}

// boolean reads a setting of git's.
func (r *Repo) boolean(key string, otherwise bool) bool {
	s, set := r.Config.Last(key)
	if !set {
		return otherwise
	}
	return s.Bare || !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(s.Value))
}
