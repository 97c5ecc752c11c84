package gitagency

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// dataDir finds the data directory and where it really is. It need not exist yet.
func dataDir(env []string, config git.Config) (string, error) {
	path, from := "", ""
	switch {
	case lookup(env, "AGENCY_DATA_DIR") != "":
		path, from = lookup(env, "AGENCY_DATA_DIR"), "AGENCY_DATA_DIR"
	case config["agency.datadir"].Value != "":
		setting := config["agency.datadir"]
		path, from = expandHome(setting.Value, lookup(env, "HOME")), "agency.dataDir ("+setting.Origin+")"
	case filepath.IsAbs(lookup(env, "XDG_DATA_HOME")): // a relative one is to be ignored, says its specification
		path, from = filepath.Join(lookup(env, "XDG_DATA_HOME"), "agency"), "XDG_DATA_HOME"
	case lookup(env, "HOME") != "":
		path, from = filepath.Join(lookup(env, "HOME"), ".local", "share", "agency"), "HOME"
	default:
		return "", &InvalidError{What: "data directory", Value: "", Want: "HOME, or AGENCY_DATA_DIR, to be set"}
	}
	if !filepath.IsAbs(path) {
		return "", &InvalidError{What: from, Value: path, Want: "an absolute path"}
	}
	resolved, err := guard.Resolve(path)
	if err != nil {
		return "", fmt.Errorf("data directory %s: %w", path, err)
	}
	if fi, err := os.Stat(resolved); err == nil && !fi.IsDir() {
		return "", &InvalidError{What: from, Value: path, Want: "a directory, not a file"}
	}
	if !utf8.ValidString(resolved) {
		return "", &InvalidError{What: "data directory", Value: resolved, Want: "a path in valid UTF-8"}
	}
	return resolved, nil
}

// expandHome does what git config --type=path does to a leading "~/".
func expandHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	return path
}

const defaultLockTimeout = 30 * time.Second

func (r *Repository) lockTimeout() (time.Duration, error) {
	if r.opts.LockTimeout != nil {
		return *r.opts.LockTimeout, nil
	}
	setting, set := r.git.Config["agency.locktimeout"]
	if !set {
		return defaultLockTimeout, nil
	}
	d, err := ParseDuration(setting.Value)
	if err != nil {
		return 0, &InvalidError{What: "agency.lockTimeout (" + setting.Origin + ")", Value: setting.Value, Want: wantDuration}
	}
	return d, nil
}

const wantDuration = "a duration such as 30s, 0 for one try or -1 for ever"

// ParseDuration reads a duration as Go does ("30s", "2m"); a bare 0 is zero and -1 is for ever.
func ParseDuration(s string) (time.Duration, error) {
	if s == "-1" {
		return -1, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, &InvalidError{What: "duration", Value: s, Want: wantDuration}
	}
	return d, nil
}

// lookup finds a variable in a given environment; the last of several wins, as it does for a program
// that is started with them.
func lookup(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}
