// Package core is an open repository: its git directory, its records, its lock and its integration worktrees.
// LockAndRecover calls Options.Recover, by which package gitagency passes the recovery of landings. Package core must
// never know landings or the content of sandboxes.
package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Options configures Open. The zero value is right for most callers.
type Options struct {
	Dir     string   // working directory of the caller; default: the current directory
	Env     []string // default: the environment of this process
	Command string   // name of the command, shown to processes that wait for the lock
	Version string   // version of the tool, for the records it writes

	// LockTimeout bounds the wait for the repository lock: 0 is one try, negative is no limit. Nil means
	// agency.lockTimeout, else 30 seconds.
	LockTimeout *time.Duration

	// NoGitProbe opens a repository with an ordinary layout without running git, because starting git takes longer
	// than many a whole command. A git that is too old is then not noticed.
	NoGitProbe bool

	// DefaultReadLimits opens a repository also if agency.readLimits is invalid, with the default limits. A diagnosis
	// needs it to report that setting.
	DefaultReadLimits bool

	// Warn receives messages for the user that are not errors. Nil drops them.
	Warn func(message string)

	// Recover finishes or undoes an interrupted landing. Every command calls it when it has taken the repository lock.
	// Nil leaves interrupted landings as they are.
	Recover func(ctx context.Context, r *Repository, repo *git.Repo) error

	// Refresh brings the records of invocations up to date whose runs go on on another platform. What it cannot find out is a
	// warning. Nil leaves them as they are.
	Refresh func(r *Repository, ids []string)

	// Hooks for tests, which need reproducible ids and a failure at every step.
	Now   func() time.Time
	Rand  io.Reader
	Fault func(ctx context.Context, point string) error // called at "<verb>/<step>:before" and ":after"

	RelockTimeout time.Duration // shortest wait for a lock that was released meanwhile; default: 30 seconds
}

// Repository is an open repository together with its records.
type Repository struct {
	ID        string // repo_id of the records
	CommonDir string // git common dir, canonical path
	DataDir   string // canonical path

	Git             *git.Repo
	Store           store.Store
	ids             ids.Source
	Settings        *settings.Reader
	CallerDir       string // directory in which the user called the command
	LockDirOverride string // directory of the lock, if not <common dir>/agency
	Opts            Options
	quarantined     bool
	jobs            *jobRefresh
	warnedElsewhere sync.Once // guards the warning about records in another data directory
}

// Open opens the repository that git itself would use in the caller's environment; in the tree of a sandbox, the repository of the
// sandbox.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	opts, err := opts.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := CheckOutsideWalls(opts.Env); err != nil {
		return nil, err
	}
	if err := proc.CheckOpenFiles(); err != nil {
		return nil, err
	}
	repo, err := openGit(ctx, opts)
	if err == nil || fault.Is[*git.NoRepositoryError](err) {
		if around, ok := openRepositoryOfSandbox(ctx, opts, repo); ok {
			repo, err = around, nil
		}
	}
	if err != nil {
		return nil, err
	}
	dataDir, err := settings.DataDir(opts.Env, repo.Config)
	if err != nil {
		return nil, err
	}
	r := newRepository(opts, repo, dataDir)
	r.CallerDir, r.quarantined = resolveCallerDir(opts, repo), proc.Getenv(opts.Env, "GIT_QUARANTINE_PATH") != ""
	if repo.ReadLimits, err = r.Settings.ReadLimits(); opts.DefaultReadLimits {
		err = nil
	}
	return r, err
}

// OpenInDataDir opens a bare repository in the data directory, of which dir returns the path. git.InitBare has made it, or will.
// The repository around the current directory, and the one that the environment names, do not count.
func OpenInDataDir(ctx context.Context, opts Options, dir func(store.Store) string) (*Repository, error) {
	opts, err := opts.WithDefaults()
	if err == nil {
		err = CheckOutsideWalls(opts.Env)
	}
	if err == nil {
		err = proc.CheckOpenFiles()
	}
	if err != nil {
		return nil, err
	}
	user, err := git.OpenBare(ctx, os.DevNull, opts.Env)
	if err != nil {
		return nil, err
	}
	dataDir, err := settings.DataDir(opts.Env, user.Config)
	if err != nil {
		return nil, err
	}
	r := newRepository(opts, user.ForBareDir(dir(store.Store{Root: dataDir})), dataDir)
	r.Git.ReadLimits, err = r.Settings.ReadLimits()
	return r, err
}

// IsPaths reports whether the repository is that of the sandboxes over plain directories.
func (r *Repository) IsPaths() bool { return r.CommonDir == r.Store.PathsGitDir() }

// newRepository returns an open repository. Its caller is in opts.Dir.
func newRepository(opts Options, repo *git.Repo, dataDir string) *Repository {
	return &Repository{
		ID: store.RepoID(repo.CommonDir), CommonDir: repo.CommonDir, DataDir: dataDir, Git: repo, Store: store.Store{Root: dataDir},
		ids: ids.Source{Now: opts.Now, Rand: opts.Rand}, CallerDir: opts.Dir, Opts: opts, Settings: opts.SettingsReader(repo.Config),
		jobs: &jobRefresh{},
	}
}

// WithWarn returns the same open repository with another receiver of warnings.
func (r *Repository) WithWarn(warn func(message string)) *Repository {
	opts := r.Opts
	opts.Warn = warn
	return &Repository{
		ID: r.ID, CommonDir: r.CommonDir, DataDir: r.DataDir, Git: r.Git, Store: r.Store, ids: r.ids, Settings: opts.SettingsReader(r.Settings.Config),
		CallerDir: r.CallerDir, LockDirOverride: r.LockDirOverride, Opts: opts, quarantined: r.quarantined,
		jobs: r.jobs,
	}
}

// SettingsReader returns a reader of the settings in a configuration, for the caller of Open.
func (o Options) SettingsReader(cfg config.Settings) *settings.Reader {
	return &settings.Reader{Config: cfg, Dir: o.Dir, Env: o.Env, LockTimeoutOverride: o.LockTimeout, Warn: o.warnf}
}

// warnf passes a message to Warn.
func (o Options) warnf(format string, args ...any) {
	if o.Warn != nil {
		o.Warn(fmt.Sprintf(format, args...))
	}
}

// CheckOutsideWalls refuses a call from behind walls, where no record is visible.
func CheckOutsideWalls(env []string) error {
	if proc.Getenv(env, IsolationVariable) == settings.IsolationOS {
		return &fault.BehindWallsError{ID: proc.Getenv(env, InvocationVariable)}
	}
	return nil
}

// openGit opens the git repository, without running git if NoGitProbe is set and its layout is ordinary.
func openGit(ctx context.Context, opts Options) (*git.Repo, error) {
	if opts.NoGitProbe {
		if repo, ordinary := git.OpenWithoutGit(opts.Dir, opts.Env); ordinary {
			return repo, nil
		}
	}
	return git.Open(ctx, opts.Dir, opts.Env)
}

// WithDefaults replaces zero values by their defaults.
func (o Options) WithDefaults() (Options, error) {
	if o.Dir == "" {
		dir, err := CurrentDir()
		if err != nil {
			return o, err
		}
		o.Dir = dir
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RelockTimeout == 0 {
		o.RelockTimeout = 30 * time.Second
	}
	return o, nil
}

// CurrentDir returns the current directory of the process; a *fault.NoCurrentDirError if it was removed, or is in a tree
// that is being removed.
func CurrentDir() (string, error) {
	dir, err := os.Getwd()
	if errors.Is(err, fs.ErrNotExist) || err == nil && store.IsBeingRemoved(dir) {
		return "", &fault.NoCurrentDirError{}
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the current directory: %w", err)
	}
	return dir, nil
}

// resolveCallerDir returns the directory in which the user called the command. Git runs hooks and aliases at the top
// of the worktree and sets GIT_PREFIX to the user's directory; an alias that has changed directory itself is there
// already.
func resolveCallerDir(opts Options, repo *git.Repo) string {
	if dir, err := guard.Resolve(opts.Dir); err != nil || dir != repo.TopLevel {
		return opts.Dir
	}
	return filepath.Join(opts.Dir, proc.Getenv(opts.Env, "GIT_PREFIX"))
}

// LockDir returns the directory of the repository lock.
func (r *Repository) LockDir() string {
	return cmp.Or(r.LockDirOverride, filepath.Join(r.CommonDir, "agency"))
}

// LockAndRecover takes the repository lock, then finishes or undoes an interrupted landing. The git children of the
// returned Repo inherit the lock.
func (r *Repository) LockAndRecover(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	repo, unlock, err := r.LockWithoutRecovery(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r.Opts.Recover != nil {
		if err := r.Opts.Recover(ctx, r, repo); err != nil { // only a warning here: landing itself reports it as an error
			r.Warn("%v", err)
		}
	}
	return repo, unlock, nil
}

// LockWithoutRecovery takes the repository lock for callers that handle interrupted landings themselves.
func (r *Repository) LockWithoutRecovery(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	timeout, err := r.Settings.LockTimeout()
	if err != nil {
		return nil, nil, err
	}
	return r.LockWithTimeout(ctx, timeout)
}

// LockWithTimeout is LockWithoutRecovery with a timeout other than the configured one.
func (r *Repository) LockWithTimeout(ctx context.Context, timeout time.Duration) (_ *git.Repo, unlock func(), err error) {
	if r.quarantined {
		return nil, nil, fault.ErrQuarantine
	}
	held, err := lock.Acquire(ctx, lock.Request{
		Dir:     r.LockDir(),
		Command: r.Opts.Command,
		Timeout: timeout,
		OnSlow:  func(h lock.Holder) { r.Warn("waiting for the repository lock, held by %s", h) },
	})
	if err != nil {
		return nil, nil, err
	}
	if held.LabelErr != nil {
		r.Warn("the repository is locked, but the holder of the lock could not be recorded: %v", held.LabelErr)
	}
	r.jobs.addLocks(1)
	return r.Git.WithLock(held.File()), func() {
		r.jobs.addLocks(-1)
		if err := held.Release(); err != nil {
			r.Warn("release the repository lock: %v", err)
		}
	}, nil
}

// IsLocked reports whether any process holds the repository lock; false if that cannot be determined.
func (r *Repository) IsLocked() bool {
	held, err := lock.IsHeld(r.LockDir())
	return err == nil && held
}

// BeginTx starts the transaction of a command.
func (r *Repository) BeginTx(verb string) *undo.Tx {
	tx := &undo.Tx{Log: func(err error) { r.Warn("clean-up: %v", err) }}
	if r.Opts.Fault != nil {
		tx.Fault = func(ctx context.Context, point string) error { return r.Opts.Fault(ctx, verb+"/"+point) }
	}
	return tx
}

// Step is a named step that cannot be undone.
type Step struct {
	Name string
	Do   func() error
}

// RunSteps runs the steps that follow a commit point. Each must tolerate having been done before, as an interrupted
// command is finished by running its steps again.
func (r *Repository) RunSteps(ctx context.Context, verb string, steps []Step) error {
	tx := r.BeginTx(verb)
	for _, s := range steps {
		if err := tx.Step(ctx, s.Name, s.Do); err != nil {
			return err
		}
	}
	return nil
}

// WorktreeBackend returns the backend that creates the trees of sandboxes and integration worktrees, and removes them.
func WorktreeBackend(repo *git.Repo) changeset.Worktree {
	return changeset.Worktree{Repo: repo, Author: ToolIdentity}
}

// RollbackTx undoes a transaction, even if ctx is cancelled: the cancellation was for the transaction, not for its
// undo.
func RollbackTx(ctx context.Context, tx *undo.Tx) {
	tx.Rollback(context.WithoutCancel(ctx)) // tx.Log has reported the errors
}

// Warn passes a formatted warning to the caller.
func (r *Repository) Warn(format string, args ...any) {
	r.Opts.warnf(format, args...)
}

// Now returns the current time in UTC, truncated to seconds, as records hold it.
func (r *Repository) Now() time.Time { return r.Opts.Now().UTC().Truncate(time.Second) }
