package gitagency

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Options says how to open a repository. The zero value is right for most.
type Options struct {
	Dir     string   // where the caller stands; default: the current directory
	Env     []string // default: the environment of this process
	Command string   // what is being done, for whoever waits for the lock

	// LockTimeout bounds the wait for the repository lock: 0 is one try, negative is for ever.
	// Nil means agency.lockTimeout, else 30 seconds.
	LockTimeout *time.Duration

	// Warn hears what a person should know that is not an error. Nil drops it.
	Warn func(message string)

	// For tests, which need the same ids twice and a failure at every step.
	Now   func() time.Time
	Rand  io.Reader
	Fault func(ctx context.Context, point string) error // asked at "<verb>/<step>:before" and ":after"
}

// Repository is an open repository together with the records kept about it.
type Repository struct {
	ID        string // as in repo_id of the records
	CommonDir string // the git common dir, canonical
	DataDir   string // canonical

	git         *git.Repo
	store       store.Store
	ids         ids.Source
	here        string // the directory the caller means by "here"
	opts        Options
	quarantined bool
}

// Open finds the repository that git itself would use, in the environment the caller received.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	if opts.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("the current directory is gone: %w", err)
		}
		opts.Dir = dir
	}
	if opts.Env == nil {
		opts.Env = os.Environ()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	repo, err := git.Open(ctx, opts.Dir, opts.Env)
	if err != nil {
		return nil, err
	}
	dataDir, err := dataDir(opts.Env, repo.Config)
	if err != nil {
		return nil, err
	}
	return &Repository{
		ID:        store.RepoID(repo.CommonDir),
		CommonDir: repo.CommonDir,
		DataDir:   dataDir,
		git:       repo,
		store:     store.Store{Root: dataDir},
		ids:       ids.Source{Now: opts.Now, Rand: opts.Rand},
		// git runs hooks and aliases at the top of the worktree and says where the user was.
		here:        filepath.Join(opts.Dir, lookup(opts.Env, "GIT_PREFIX")),
		opts:        opts,
		quarantined: lookup(opts.Env, "GIT_QUARANTINE_PATH") != "",
	}, nil
}

// GitVersion is the version of git that was found.
func (r *Repository) GitVersion() string { return r.git.Version.String() }

// lockDir is where the lock of the repository lies, and what a transaction needs for a moment.
func (r *Repository) lockDir() string { return filepath.Join(r.CommonDir, "agency") }

// lock takes the repository lock. The git it returns passes the lock on to its children.
func (r *Repository) lock(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	if r.quarantined {
		return nil, nil, ErrQuarantine
	}
	timeout, err := r.lockTimeout()
	if err != nil {
		return nil, nil, err
	}
	held, err := lock.Acquire(ctx, lock.Request{
		Dir:     r.lockDir(),
		Command: r.opts.Command,
		Timeout: timeout,
		Slow:    func(h lock.Holder) { r.warn("waiting for the repository lock, held by %s", h) },
	})
	if err != nil {
		return nil, nil, err
	}
	if held.LabelErr != nil {
		r.warn("the repository is locked, but not all of that could be written down: %v", held.LabelErr)
	}
	return r.git.Holding(held.File()), func() {
		if err := held.Release(); err != nil {
			r.warn("release the repository lock: %v", err)
		}
	}, nil
}

// busy reports whether anybody holds the repository lock. When it cannot be told, nobody does.
func (r *Repository) busy() bool {
	held, err := lock.Held(r.lockDir())
	return err == nil && held
}

// begin starts a transaction of a verb.
func (r *Repository) begin(verb string) *undo.Tx {
	tx := &undo.Tx{Log: func(err error) { r.warn("clean-up: %v", err) }}
	if r.opts.Fault != nil {
		tx.Fault = func(ctx context.Context, point string) error { return r.opts.Fault(ctx, verb+"/"+point) }
	}
	return tx
}

// rollback undoes a transaction, also when it was cancelled: undoing is not what was cancelled.
func rollback(ctx context.Context, tx *undo.Tx) {
	tx.Rollback(context.WithoutCancel(ctx)) // what fails there was logged
}

func (r *Repository) warn(format string, args ...any) {
	if r.opts.Warn != nil {
		r.opts.Warn(fmt.Sprintf(format, args...))
	}
}

func (r *Repository) now() time.Time { return r.opts.Now().UTC().Truncate(time.Second) }

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
