package gitagency

import (
	"context"
	"io"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/platform"
)

// Repository is an open repository together with its records.
type Repository struct {
	ID        string // repo_id of the records
	CommonDir string // git common dir, canonical path
	DataDir   string // canonical path

	core      *core.Repository
	platforms *platform.Client
}

func newRepository(r *core.Repository) *Repository {
	return &Repository{ID: r.ID, CommonDir: r.CommonDir, DataDir: r.DataDir, core: r, platforms: platform.New(r)}
}

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

	// AsRecorded returns runs on other machines as their records have them: no engine is asked. It is for callers that must not wait.
	AsRecorded bool

	// Warn receives messages for the user that are not errors. Nil drops them.
	Warn func(message string)

	// Hooks for tests, which need reproducible ids and a failure at every step.
	Now   func() time.Time
	Rand  io.Reader
	Fault func(ctx context.Context, point string) error // called at "<verb>/<step>:before" and ":after"
}

// internal returns the options without a recovery of landings, which only Open adds.
func (o Options) internal() core.Options {
	return core.Options{
		Dir: o.Dir, Env: o.Env, Command: o.Command, Version: o.Version, LockTimeout: o.LockTimeout,
		NoGitProbe: o.NoGitProbe, DefaultReadLimits: o.DefaultReadLimits, Warn: o.Warn, Now: o.Now, Rand: o.Rand, Fault: o.Fault,
	}
}

// CurrentDir returns the current directory of the process; a *NoCurrentDirError if it was removed.
func CurrentDir() (string, error) {
	dir, err := core.CurrentDir()
	return dir, publicError(err)
}

// Open opens the repository that git itself would use in the caller's environment.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	o := opts.internal()
	if o.Recover = landing.Recover; !opts.AsRecorded {
		o.Refresh = refreshJobs
	}
	r, err := core.Open(ctx, o)
	if err != nil {
		return nil, publicError(err)
	}
	return newRepository(r), nil
}
