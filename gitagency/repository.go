package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
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

	// Warn receives messages for the user that are not errors. Nil drops them.
	Warn func(message string)

	// Hooks for tests, which need reproducible ids and a failure at every step.
	Now   func() time.Time
	Rand  io.Reader
	Fault func(ctx context.Context, point string) error // called at "<verb>/<step>:before" and ":after"
}

// Repository is an open repository together with its records.
type Repository struct {
	ID        string // repo_id of the records
	CommonDir string // git common dir, canonical path
	DataDir   string // canonical path

	git             *git.Repo
	store           store.Store
	ids             ids.Source
	callerDir       string // directory in which the user called the command
	lockDirOverride string // directory of the lock, if not <common dir>/agency
	opts            Options
	quarantined     bool
	warnedElsewhere sync.Once // guards the warning about records in another data directory
	warnedUntrusted sync.Once // guards the warning about an agency.verify that the repository's own config sets
}

// Open opens the repository that git itself would use in the caller's environment.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkOutsideWalls(opts.Env); err != nil {
		return nil, err
	}
	repo, err := openGit(ctx, opts)
	if err != nil {
		return nil, err
	}
	dataDir, err := dataDir(opts.Env, repo.Config)
	if err != nil {
		return nil, err
	}
	return &Repository{
		ID:          store.RepoID(repo.CommonDir),
		CommonDir:   repo.CommonDir,
		DataDir:     dataDir,
		git:         repo,
		store:       store.Store{Root: dataDir},
		ids:         ids.Source{Now: opts.Now, Rand: opts.Rand},
		callerDir:   resolveCallerDir(opts, repo),
		opts:        opts,
		quarantined: proc.Getenv(opts.Env, "GIT_QUARANTINE_PATH") != "",
	}, nil
}

// checkOutsideWalls refuses a call from behind walls, where no record is visible.
func checkOutsideWalls(env []string) error {
	if proc.Getenv(env, isolationVariable) == isolationOS {
		return &BehindWallsError{ID: proc.Getenv(env, invocationVariable)}
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

// withDefaults replaces zero values by their defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return o, fmt.Errorf("the current directory is gone: %w", err)
		}
		o.Dir = dir
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
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

// lockDir returns the directory of the repository lock.
func (r *Repository) lockDir() string {
	return cmp.Or(r.lockDirOverride, filepath.Join(r.CommonDir, "agency"))
}

// lockAndRecover takes the repository lock, then finishes or undoes an interrupted landing. The git children of the
// returned Repo inherit the lock.
func (r *Repository) lockAndRecover(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	repo, unlock, err := r.lockWithoutRecovery(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r.hasInterruptedLanding() {
		if err := r.recoverLanding(ctx, repo); err != nil { // only a warning here: landing itself reports it as an error
			r.warn("%v", err)
		}
	}
	return repo, unlock, nil
}

// lockWithoutRecovery takes the repository lock for callers that handle interrupted landings themselves.
func (r *Repository) lockWithoutRecovery(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	timeout, err := r.lockTimeout()
	if err != nil {
		return nil, nil, err
	}
	return r.lockWithTimeout(ctx, timeout)
}

// lockWithTimeout is lockWithoutRecovery with a timeout other than the configured one.
func (r *Repository) lockWithTimeout(ctx context.Context, timeout time.Duration) (_ *git.Repo, unlock func(), err error) {
	if r.quarantined {
		return nil, nil, ErrQuarantine
	}
	held, err := lock.Acquire(ctx, lock.Request{
		Dir:     r.lockDir(),
		Command: r.opts.Command,
		Timeout: timeout,
		OnSlow:  func(h lock.Holder) { r.warn("waiting for the repository lock, held by %s", h) },
	})
	if err != nil {
		return nil, nil, err
	}
	if held.LabelErr != nil {
		r.warn("the repository is locked, but not all of that could be written down: %v", held.LabelErr)
	}
	return r.git.WithLock(held.File()), func() {
		if err := held.Release(); err != nil {
			r.warn("release the repository lock: %v", err)
		}
	}, nil
}

// isLocked reports whether any process holds the repository lock; false if that cannot be determined.
func (r *Repository) isLocked() bool {
	held, err := lock.IsHeld(r.lockDir())
	return err == nil && held
}

// beginTx starts the transaction of a command.
func (r *Repository) beginTx(verb string) *undo.Tx {
	tx := &undo.Tx{Log: func(err error) { r.warn("clean-up: %v", err) }}
	if r.opts.Fault != nil {
		tx.Fault = func(ctx context.Context, point string) error { return r.opts.Fault(ctx, verb+"/"+point) }
	}
	return tx
}

// step is a named step that cannot be undone.
type step struct {
	name string
	do   func() error
}

// runSteps runs the steps that follow a commit point. Each must tolerate having been done before, as an interrupted
// command is finished by running its steps again.
func (r *Repository) runSteps(ctx context.Context, verb string, steps []step) error {
	tx := r.beginTx(verb)
	for _, s := range steps {
		if err := tx.Step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// worktreeBackend returns the backend that creates and removes the trees of sandboxes and integration worktrees.
func worktreeBackend(repo *git.Repo) changeset.Worktree { return changeset.Worktree{Repo: repo} }

// rollbackTx undoes a transaction, even if ctx is cancelled: the cancellation was for the transaction, not for its
// undo.
func rollbackTx(ctx context.Context, tx *undo.Tx) {
	tx.Rollback(context.WithoutCancel(ctx)) // tx.Log has reported the errors
}

func (r *Repository) warn(format string, args ...any) {
	if r.opts.Warn != nil {
		r.opts.Warn(fmt.Sprintf(format, args...))
	}
}

func (r *Repository) now() time.Time { return r.opts.Now().UTC().Truncate(time.Second) }
