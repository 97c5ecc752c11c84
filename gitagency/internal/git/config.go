package git

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
)

// ReadConfig reads the settings that apply in a directory, which need not be in a repository.
func ReadConfig(ctx context.Context, dir string, env []string) (config.Settings, error) {
	return readConfig(ctx, Runner{Dir: dir, Env: append(parseableEnv(env), "LC_ALL=C")})
}

func readConfig(ctx context.Context, run Runner) (config.Settings, error) {
	config, _, err := run.readSettings(ctx)
	return config, err
}

// readSettings runs "git config" and returns the settings and its standard error.
func (r Runner) readSettings(ctx context.Context) (_ config.Settings, said string, err error) {
	out, errOut, err := r.OutputAndStderr(ctx, nil, []string{"config", "-z", "--show-scope", "--show-origin", "--get-regexp", config.KeyPattern()})
	if ExitedWith(err, 1) {
		return config.Settings{}, string(errOut), nil // no key is set
	}
	if err != nil {
		return nil, "", err
	}
	config, err := config.ParseSettings(string(out))
	return config, string(errOut), err
}

// ParseExpiry parses an expiry date as git does: "2.weeks.ago", "now", "never" or a date. Nothing expires at the zero
// time, which is "never". ok is false when git cannot parse it.
func ParseExpiry(ctx context.Context, dir string, env []string, text string) (at time.Time, ok bool, err error) {
	run := Runner{Dir: dir, Env: append(parseableEnv(env), "LC_ALL=C")}
	// Git converts the default like a value. No configuration file can have this key, so the default always answers.
	out, err := run.Output(ctx, "config", "--type=expiry-date", "--default", text, "--get", "agency.\x01.unset")
	if ExitedWith(err, 128) {
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

// ConfigBool returns a boolean setting, or otherwise where it is not set.
func (r *Repo) ConfigBool(key string, otherwise bool) bool {
	s, set := r.Config.Last(key)
	if !set {
		return otherwise
	}
	return s.NoValue || !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(s.Value))
}

// RemotePathBase returns the directory that a relative path of a remote is resolved against: the main worktree, or a
// bare repository itself.
func (r *Repo) RemotePathBase() string {
	if filepath.Base(r.CommonDir) == ".git" {
		return filepath.Dir(r.CommonDir)
	}
	return r.CommonDir
}

// ExpandURL applies the insteadOf rules of the user's own configuration to a URL. It does not contact the remote.
func (r *Repo) ExpandURL(ctx context.Context, url string) (_ string, err error) {
	m, err := r.NewMirror("")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	out, err := Runner{Dir: m.Dir, Env: slices.Concat(r.Env, NoLazyFetchEnv)}.OutputWithGlobals(ctx, []string{"--git-dir=" + m.Dir}, []string{"ls-remote", "--get-url", "--", url})
	return strings.TrimSuffix(string(out), "\n"), err
}
