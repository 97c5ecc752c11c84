// Package git, with the packages below it, is the only place that runs git on the host; package handoff has scripts for
// git behind the walls. It turns requests into argv, runs git through proc with a scrubbed environment, and parses the
// output into typed values. Where a process would be too slow it reads git's files itself.
//
// It knows repositories, worktrees, refs and objects, and nothing of sandboxes and invocations; of markers only the name
// .agency, which must not land. It must never decide by git's English messages, never go through a shell, and never let a
// variable that a hook or an alias left in the environment choose the repository: Open resolves the repository once, and
// every later git gets it by explicit path.
package git

import (
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// Repo is one resolved repository.
type Repo struct {
	CommonDir string // canonical path of the directory that all worktrees share
	GitDir    string // canonical path of the git directory of the caller's worktree
	TopLevel  string // canonical path of the caller's worktree; empty outside of any worktree
	Version   Version
	Config    config.Settings

	configDir string   // git directory of the worktree that Config was read for; empty: GitDir
	configEnv []string // environment that imposes Config on every git: see WithWorktreeConfig

	Env       []string
	Inherit   []*os.File
	dryRunDir string // directory that takes all writes in a dry run; empty: write to the repository
	InHook    bool   // git started this process from a hook
	LockWait  LockWait

	ReadLimits readlimit.Limits // limits of reading data that an agent wrote

	lookups *sharedLookup // of WithSharedLookups; nil: each lookup starts a git
}

// ReadingOf returns the limits of a git that reads data of an agent, such as attributes, by which they name that data.
func (r *Repo) ReadingOf(what string) readlimit.Reading {
	return readlimit.Reading{Limits: r.ReadLimits, What: what}
}

// CheckoutReading is ReadingOf for a git that runs filters or merge drivers of the user, such as git-lfs, which have the
// same limits: it may take ten times as much processor time, and nothing else is limited. Git itself takes half a minute
// to check out a million files.
func (r *Repo) CheckoutReading(what string) readlimit.Reading {
	return readlimit.Reading{Limits: readlimit.Limits{Time: 10 * r.ReadLimits.Time}, What: what + ", with ten times the usual limit,"}
}

// WithLock returns a copy of the repository whose writing git processes inherit the descriptor of lock, so that the
// lock is held until the last such git has ended, even if this process dies first.
func (r *Repo) WithLock(lock *os.File) *Repo {
	held := *r
	held.Inherit = []*os.File{lock}
	return &held
}
