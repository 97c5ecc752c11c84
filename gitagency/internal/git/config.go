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
// trusted, or whose value is harmless in any case; harmless may be nil. others are the untrusted settings that
// would have overridden it.
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

// keyPattern matches the keys that are read: ours, and those of git that change what we do.
const keyPattern = `^(agency\..*|color\.(agency|ui|pager|diff\.(context|plain|meta|frag|func|old|new))|pager\.agency|checkout\.workers|(user|author|committer)\.(name|email)|attr\.tree|core\.(bare|worktree|pager|repositoryformatversion|attributesfile|autocrlf|bigfilethreshold|checkroundtripencoding|checkstat|eol|excludesfile|filemode|ignorecase|precomposeunicode|sharedrepository|symlinks|trustctime)|extensions\.(objectformat|worktreeconfig)|includeif\..*\.path|i18n\.commitencoding|lfs\.storage|filter\..*\.(clean|smudge|process|required)|merge\..*\.(driver|name|recursive)|merge\.(directoryrenames|renamelimit|renames|renormalize)|diff\.(renamelimit|renames))$`

// isWantedKey reports whether keyPattern matches a key.
func isWantedKey(key string) bool {
	switch key {
	case "color.agency", "color.ui", "color.pager", "pager.agency", "checkout.workers", "core.bare", "core.worktree", "core.pager", "attr.tree", formatVersionKey, objectFormatKey, worktreeConfigKey, lfsStorageKey, commitEncodingKey:
		return true
	}
	if who, what, _ := strings.Cut(key, "."); slices.Contains(identitySections, who) && (what == "name" || what == "email") {
		return true
	}
	if slot, is := strings.CutPrefix(key, "color.diff."); is {
		return slices.Contains(diffColorSlots, slot)
	}
	if _, is := mergeDriverName(key); is || slices.Contains(mergeKeys, key) {
		return true
	}
	if strings.HasPrefix(key, includeIfPrefix) {
		return isIncludeKey(key)
	}
	_, filters := filterName(key)
	return filters || strings.HasPrefix(key, "agency.") || slices.Contains(safeKeys, key)
}

// filterName returns the filter that a key configures.
func filterName(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "filter.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || name[end+1:] != "required" && !slices.Contains(filterCommands, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// mergeKeys are the settings that influence the result of a merge.
var mergeKeys = []string{"merge.directoryrenames", "merge.renamelimit", "merge.renames", "merge.renormalize", "diff.renamelimit", "diff.renames"}

// identitySections are the sections that can set a name and an email.
var identitySections = []string{"user", "author", "committer"}

// diffColorSlots are the parts of a diff that can have a color.
var diffColorSlots = []string{"context", "plain", "meta", "frag", "func", "old", "new"}

// filterCommands are the commands that a filter can run.
var filterCommands = []string{"clean", "smudge", "process"}

// formatVersionKey is set in every repository.
const formatVersionKey = "core.repositoryformatversion"

// ReadConfig reads the settings that apply in a directory, which need not be in a repository.
func ReadConfig(ctx context.Context, dir string, env []string) (Settings, error) {
	return readConfig(ctx, runner{dir: dir, env: append(parseableEnv(env), "LC_ALL=C")})
}

func readConfig(ctx context.Context, run runner) (Settings, error) {
	config, _, err := run.readSettings(ctx)
	return config, err
}

// readSettings runs "git config" and returns the settings and its standard error.
func (r runner) readSettings(ctx context.Context) (_ Settings, said string, err error) {
	out, errOut, err := r.outputAndStderr(ctx, nil, []string{"config", "-z", "--show-scope", "--show-origin", "--get-regexp", keyPattern})
	if exitedWith(err, 1) {
		return Settings{}, string(errOut), nil // no key is set
	}
	if err != nil {
		return nil, "", err
	}
	config, err := parseSettings(string(out))
	return config, string(errOut), err
}

// parseSettings reads "scope NUL origin NUL key LF value NUL" records; a key without a value, which git takes as
// true, has no LF.
func parseSettings(out string) (Settings, error) {
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

// ParseExpiry parses an expiry date as git does: "2.weeks.ago", "now", "never" or a date. Nothing expires at the zero
// time, which is "never". ok is false when git cannot parse it.
func ParseExpiry(ctx context.Context, dir string, env []string, text string) (at time.Time, ok bool, err error) {
	run := runner{dir: dir, env: append(parseableEnv(env), "LC_ALL=C")}
	// Git converts the default like a value. No configuration file can have this key, so the default always answers.
	out, err := run.output(ctx, "config", "--type=expiry-date", "--default", text, "--get", "agency.\x01.unset")
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
	case seconds > math.MaxInt32*1000: // for "now" git prints the largest time there is
		return time.Now(), true, nil
	}
	return time.Unix(int64(seconds), 0), true, nil
}

// configBool returns a boolean setting, or otherwise where it is not set.
func (r *Repo) configBool(key string, otherwise bool) bool {
	s, set := r.Config.Last(key)
	if !set {
		return otherwise
	}
	return s.NoValue || !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(s.Value))
}
