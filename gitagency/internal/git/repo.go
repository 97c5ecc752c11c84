// Package git is the only place that talks to git. It turns questions into argv, runs git through
// proc with a scrubbed environment, and turns the answers into typed values.
//
// It knows repositories, worktrees, refs and objects, and nothing of sandboxes, invocations or
// markers. It never matches git's English messages, never goes through a shell, and never lets a
// variable that a hook or an alias left in the environment choose what it works on: the repository
// is resolved once, by Open, and named explicitly from then on.
package git

import "os"

// Repo is one repository, resolved.
type Repo struct {
	CommonDir string // canonical; what all worktrees of the repository share
	GitDir    string // canonical; that of the worktree the caller stands in
	TopLevel  string // of that worktree, canonical; empty outside of any
	Version   Version
	Config    Config

	of      string   // the git directory of the worktree that Config is of; empty is GitDir
	imposed []string // environment by which every git goes by that: see in

	env       []string
	inherit   []*os.File
	rehearsal string // where everything is written instead, when nothing may change
	inHook    bool   // a git that runs a hook started us
	waiting   waiting
}

// Holding returns the repository as seen by somebody who holds a lock: every git that changes
// something inherits the lock's descriptor, so that the lock outlives us as long as such a git does.
func (r *Repo) Holding(lock *os.File) *Repo {
	held := *r
	held.inherit = []*os.File{lock}
	return &held
}
