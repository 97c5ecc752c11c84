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

// Options says how to open a repository. The zero value is right for most.
type Options struct {
	Dir     string   // where the caller stands; default: the current directory
	Env     []string // default: the environment of this process
	Command string   // what is being done, for whoever waits for the lock
	Version string   // of the tool, for what it writes down

	// LockTimeout bounds the wait for the repository lock: 0 is one try, negative is for ever.
	// Nil means agency.lockTimeout, else 30 seconds.
	LockTimeout *time.Duration

	// Swift finds an ordinary repository without git, which takes longer than all that many a command does. Too
	// old a git is then not noticed.
	Swift bool

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
	lockedAt    string // where the lock lies, if not in the common dir
	opts        Options
	quarantined bool
	warned      sync.Once // that there are records elsewhere
	unbelieved  sync.Once // that the repository names a command, and is not believed
}

// Open finds the repository that git itself would use, in the environment the caller received.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	if err := outside(opts.Env); err != nil {
		return nil, err
	}
	repo, err := find(ctx, opts)
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
		here:        here(opts, repo),
		opts:        opts,
		quarantined: proc.Variable(opts.Env, "GIT_QUARANTINE_PATH") != "",
	}, nil
}

// outside refuses who is behind walls, from where no record can be seen.
func outside(env []string) error {
	if proc.Variable(env, isolationVariable) == isolationOS {
		return &BehindWallsError{ID: proc.Variable(env, invocationVariable)}
	}
	return nil
}

func find(ctx context.Context, opts Options) (*git.Repo, error) {
	if opts.Swift {
		if repo, ordinary := git.OpenSwiftly(opts.Dir, opts.Env); ordinary {
			return repo, nil
		}
	}
	return git.Open(ctx, opts.Dir, opts.Env)
}

// filled says what the zero values stand for.
func (o Options) filled() (Options, error) {
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

// here is the directory the user means. Git runs hooks and aliases at the top of the worktree and says
// where the user was; an alias that has changed directory itself is there already.
func here(opts Options, repo *git.Repo) string {
	if dir, err := guard.Resolve(opts.Dir); err != nil || dir != repo.TopLevel {
		return opts.Dir
	}
	return filepath.Join(opts.Dir, proc.Variable(opts.Env, "GIT_PREFIX"))
}

// lockDir is where the lock of the repository lies.
func (r *Repository) lockDir() string {
	return cmp.Or(r.lockedAt, filepath.Join(r.CommonDir, "agency"))
}

// lock takes the repository lock, and finishes or undoes a landing that was interrupted. The git it returns passes the
// lock on to its children.
func (r *Repository) lock(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	repo, unlock, err := r.lockOnly(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r.interruptedLanding() {
		if err := r.finishLanding(ctx, repo); err != nil { // who wants to land is told so again
			r.warn("%v", err)
		}
	}
	return repo, unlock, nil
}

// lockOnly is lock for who looks after what was interrupted.
func (r *Repository) lockOnly(ctx context.Context) (_ *git.Repo, unlock func(), err error) {
	timeout, err := r.lockTimeout()
	if err != nil {
		return nil, nil, err
	}
	return r.lockWithin(ctx, timeout)
}

// lockWithin is lockOnly for who does not wait as long as others do.
func (r *Repository) lockWithin(ctx context.Context, timeout time.Duration) (_ *git.Repo, unlock func(), err error) {
	if r.quarantined {
		return nil, nil, ErrQuarantine
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

// step is a named step of which there is no way back.
type step struct {
	name string
	do   func() error
}

// forward runs the steps that follow a commit point. Each must cope with having been done before: this
// is also how an interrupted one is finished.
func (r *Repository) forward(ctx context.Context, verb string, steps []step) error {
	tx := r.begin(verb)
	for _, s := range steps {
		if err := tx.Step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// backend makes and unmakes the trees of sandboxes and integration worktrees.
func backend(repo *git.Repo) changeset.Worktree { return changeset.Worktree{Repo: repo} }

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
