// Package settings reads the settings of git-agency from git config and the environment, with their defaults and the rule
// which of them the repository's own config may set. It knows no repository and writes nothing.
package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
)

// Reader reads the settings of one repository and its user from git config and the environment.
type Reader struct {
	Config config.Settings
	Dir    string   // working directory of the caller
	Env    []string // environment of the caller

	LockTimeoutOverride *time.Duration // set on the command line; nil means agency.lockTimeout
	Warn                func(format string, args ...any)

	warned sync.Map // messages of WarnIgnored
}

// Runners lists the agents that a sandbox can be started for, known and configured ones, in alphabetical order.
func (r *Reader) Runners() []string {
	names := slices.AppendSeq(runner.KnownNames(), maps.Keys(r.RunnerCommands()))
	slices.Sort(names)
	return slices.Compact(names)
}

// RunnerCommands returns the commands of the runners that the user configured. A command in the repository's own
// config is ignored with a warning: an agent may have written it.
func (r *Reader) RunnerCommands() map[string]string {
	commands := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		name := cutPrefixSuffix(key, "agency.", ".command")
		if name == "" || reservedSections[name] != "" {
			continue
		}
		if command, set := r.trustedCommand(key); set {
			commands[name] = command
		}
	}
	return commands
}

// trustedCommand returns the command of a key that only the user may set. Others are ignored with a warning.
func (r *Reader) trustedCommand(key string) (command string, set bool) {
	setting, set, others := r.Config.LastTrusted(key, nil)
	r.WarnIgnored(key, others)
	return setting.Value, set
}

// DataDir returns the data directory with symbolic links resolved. It need not exist yet.
func DataDir(env []string, config config.Settings) (string, error) {
	path, from := "", ""
	switch setting, _ := config.Last("agency.datadir"); {
	case proc.Getenv(env, "AGENCY_DATA_DIR") != "":
		path, from = proc.Getenv(env, "AGENCY_DATA_DIR"), "AGENCY_DATA_DIR"
	case setting.Value != "":
		path, from = ExpandHome(setting.Value, proc.Getenv(env, "HOME")), "agency.dataDir ("+setting.Origin+")"
	case filepath.IsAbs(proc.Getenv(env, "XDG_DATA_HOME")): // the XDG specification says to ignore a relative path
		path, from = filepath.Join(proc.Getenv(env, "XDG_DATA_HOME"), "agency"), "XDG_DATA_HOME"
	case proc.Getenv(env, "HOME") != "":
		path, from = filepath.Join(proc.Getenv(env, "HOME"), ".local", "share", "agency"), "HOME"
	default:
		return "", &fault.InvalidError{What: "path of the data directory", Value: "", Want: "HOME, or AGENCY_DATA_DIR, to be set"}
	}
	if !filepath.IsAbs(path) {
		return "", &fault.InvalidError{What: from, Value: path, Want: "an absolute path"}
	}
	resolved, err := guard.Resolve(path)
	if err != nil {
		return "", fmt.Errorf("data directory %s: %w", path, err)
	}
	if fi, err := os.Stat(resolved); err == nil && !fi.IsDir() {
		return "", &fault.InvalidError{What: from, Value: path, Want: "a directory, not a file"}
	}
	if !utf8.ValidString(resolved) {
		return "", &fault.InvalidError{What: "data directory", Value: resolved, Want: "a path in valid UTF-8"}
	}
	return resolved, nil
}

// ExpandHome expands a leading "~/" or "~user/" as git config --type=path does. The path of an unknown user stays
// unchanged, and is then refused for not being absolute.
func ExpandHome(path, home string) string {
	if !strings.HasPrefix(path, "~") {
		return path
	}
	name, rest, _ := strings.Cut(path[1:], "/")
	if name != "" {
		home = ""
		if u, err := user.Lookup(name); err == nil {
			home = u.HomeDir
		}
	}
	if home == "" {
		return path
	}
	return filepath.Join(home, rest)
}

const defaultLockTimeout = 30 * time.Second

// LockTimeout returns the limit of the wait for the repository lock: LockTimeoutOverride, else agency.lockTimeout, else
// 30 seconds.
func (r *Reader) LockTimeout() (time.Duration, error) {
	if r.LockTimeoutOverride != nil {
		return *r.LockTimeoutOverride, nil
	}
	return r.Duration("agency.lockTimeout", defaultLockTimeout, ParseDuration)
}

// Default timeouts.
const (
	DefaultOperationTimeout = 10 * time.Minute // for one command, one upload or one snapshot
	DefaultRunTimeout       = time.Hour        // for a run of an agent, from its start to its end
)

// OperationTimeout returns the time limit of one operation in a sandbox: agency.operationTimeout, else
// DefaultOperationTimeout. Negative is no limit.
func (r *Reader) OperationTimeout() (time.Duration, error) {
	return r.Duration("agency.operationTimeout", DefaultOperationTimeout, ParseTimeout)
}

// SnapshotEvery returns how often a sandbox is snapshotted while an agent works in it: agency.snapshotEvery, else every
// minute. Zero or less is never.
func (r *Reader) SnapshotEvery() (time.Duration, error) {
	return r.Duration(SnapshotEveryKey, time.Minute, parseInterval)
}

// AskTimeout returns how long an agent that asks waits for the answer while it runs: agency.askTimeout, else not at all.
// Negative is no limit.
func (r *Reader) AskTimeout() (time.Duration, error) {
	return r.Duration(AskTimeoutKey, 0, parseAskTimeout)
}

// WithOperationTimeout returns a context that ends with an *OperationTimeoutError after OperationTimeout. what names the
// operation.
func (r *Reader) WithOperationTimeout(ctx context.Context, what string) (context.Context, context.CancelFunc, error) {
	timeout, err := r.OperationTimeout()
	if err != nil {
		return nil, nil, err
	}
	if timeout < 0 {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &fault.OperationTimeoutError{What: what, Timeout: timeout})
	return ctx, cancel, nil
}

// RunTimeout returns the time limit of a run of an agent: agency.runTimeout, else DefaultRunTimeout. Negative is no
// limit.
func (r *Reader) RunTimeout() (time.Duration, error) {
	return r.Duration("agency.runTimeout", DefaultRunTimeout, ParseTimeout)
}

// CheckRun checks the settings that a run of an agent reads, some of them only after its sandbox was created or at its end.
func (r *Reader) CheckRun() error {
	_, runErr := r.RunTimeout()
	_, askErr := r.AskTimeout()
	_, everyErr := r.SnapshotEvery()
	_, notifyErr := r.Bool(NotifyKey, true)
	_, radarErr := r.Bool(RadarNotifyKey, false)
	_, _, commandErr := r.ShellCommand(NotifyCommandKey)
	_, _, setupErr := r.ShellCommand(SetupKey)
	return cmp.Or(runErr, askErr, everyErr, notifyErr, radarErr, commandErr, setupErr)
}

// Duration returns the value of a key, parsed by parse, or fallback if the key is not set.
func (r *Reader) Duration(key string, fallback time.Duration, parse func(string) (time.Duration, error)) (time.Duration, error) {
	setting, set := r.Config.Last(CanonicalKey(key))
	if !set {
		return fallback, nil
	}
	d, err := parse(setting.Value)
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) {
		return 0, InvalidSetting(key, setting, invalid.Want)
	}
	return d, err
}

const wantBool = "true or false"

// Bool returns the boolean value of a key, or fallback if it is not set. A key with repoCanOnlyEnable cannot
// be switched off by the repository's own config.
func (r *Reader) Bool(key string, fallback bool) (bool, error) {
	setting, set := r.Config.Last(CanonicalKey(key))
	if slices.ContainsFunc(Keys(), func(k Key) bool { return k.Name == key && k.repoCanOnlyEnable }) {
		setting, set, _ = r.Config.LastTrusted(CanonicalKey(key), doesNotDisable)
	}
	if !set {
		return fallback, nil
	}
	yes, ok := parseBool(setting.Value)
	if !ok {
		return false, InvalidSetting(key, setting, wantBool)
	}
	return yes, nil
}

// InvalidSetting returns an *InvalidError that names the key and the file in which it is set.
func InvalidSetting(key string, s config.Setting, want string) error {
	return &fault.InvalidError{What: key + " (" + s.Origin + ")", Value: s.Value, Want: want, ConfigKey: key, Setting: s}
}

// invalidKey is InvalidSetting for a key that does not exist; want names those that do.
func invalidKey(key string, s config.Setting, want string) error {
	return &fault.InvalidError{What: "key " + key + " (" + s.Origin + ")", Value: s.Value, Want: want, ConfigKey: key, Setting: s}
}

const (
	trashLimitKey     = "agency.trashLimit"
	defaultTrashLimit = 1 << 30
	wantSize          = "a size such as 512m or 2g"
)

// CloneHardlinks reports whether a clone has hard links to the objects of the repository instead of borrowing them.
func (r *Reader) CloneHardlinks() (bool, error) { return r.Bool(cloneHardlinksKey, false) }

// FastCheckout reports whether new trees get copies of the files that another worktree has unchanged.
func (r *Reader) FastCheckout() (bool, error) { return r.Bool(fastCheckoutKey, true) }

// TrashLimit returns the largest size of an archive in the trash, in bytes: agency.trashLimit, else 1 GiB.
func (r *Reader) TrashLimit() (int64, error) {
	setting, set := r.Config.Last(CanonicalKey(trashLimitKey))
	if !set {
		return defaultTrashLimit, nil
	}
	size, err := parseSize(setting.Value)
	if err != nil {
		return 0, InvalidSetting(trashLimitKey, setting, wantSize)
	}
	return size, nil
}

func parseSize(value string) (int64, error) {
	size, err := confine.ParseSize(value)
	if err != nil {
		return 0, &fault.InvalidError{What: "size", Value: value, Want: wantSize}
	}
	return size, nil
}

const (
	pruneAfterKey     = "agency.pruneAfter"
	defaultPruneAfter = "2.weeks.ago"
	wantExpiry        = "a time such as 2.weeks.ago or 2026-01-28, now, or never"
)

// PruneExpiry parses the moment before which ended things may be pruned; the zero time if none may. An empty text
// means agency.pruneAfter, else two weeks.
func (r *Reader) PruneExpiry(ctx context.Context, text string) (time.Time, error) {
	var setting config.Setting
	set := false
	if text == "" {
		text = defaultPruneAfter
		if setting, set = r.Config.Last(CanonicalKey(pruneAfterKey)); set {
			text = setting.Value
		}
	}
	at, ok, err := parseExpiry(ctx, r.Dir, r.Env, text)
	switch {
	case err != nil || ok:
		return at, err
	case set:
		return at, InvalidSetting(pruneAfterKey, setting, wantExpiry)
	}
	return at, &fault.InvalidError{What: "expiry", Value: text, Want: wantExpiry}
}

// parseExpiry parses a moment as git does, but refuses text that looks like a duration: git would take 14d for the
// fourteenth of the month.
func parseExpiry(ctx context.Context, dir string, env []string, text string) (time.Time, bool, error) {
	digits := strings.TrimLeft(text, "0123456789")
	if digits != text && digits != "" && strings.Trim(digits, "abcdefghijklmnopqrstuvwxyz") == "" {
		return time.Time{}, false, nil
	}
	return git.ParseExpiry(ctx, dir, env, text)
}

const wantDuration = "a duration such as 30s, 0 for one try or -1 for ever"

// ParseDuration parses a Go duration ("30s", "2m"); a bare 0 is zero and -1 means no limit.
func ParseDuration(s string) (time.Duration, error) {
	if s == "-1" {
		return -1, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, &fault.InvalidError{What: "duration", Value: s, Want: wantDuration}
	}
	return d, nil
}

// parseInterval parses the time between two repetitions; 0 means never.
func parseInterval(s string) (time.Duration, error) {
	return parseDurationAs(s, "a duration such as 30s, or 0 for never")
}

// parseAskTimeout parses how long an agent waits for an answer.
func parseAskTimeout(s string) (time.Duration, error) {
	return parseDurationAs(s, "a duration such as 10m, 0 to end the run at once or -1 for ever")
}

// parseDurationAs is ParseDuration for a value of which 0 and -1 mean something else.
func parseDurationAs(s, want string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err != nil {
		return 0, &fault.InvalidError{What: "duration", Value: s, Want: want}
	}
	return d, nil
}

const wantTimeout = "a duration such as 90s or 10m, or -1 for ever"

// ParseTimeout parses a duration that must not be zero; -1 means no limit.
func ParseTimeout(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err != nil || d == 0 {
		return 0, &fault.InvalidError{What: "timeout", Value: s, Want: wantTimeout}
	}
	return d, nil
}
