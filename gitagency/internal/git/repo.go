// Package git is the only place that talks to git. It turns questions into argv, runs git through
// proc with a scrubbed environment, and turns the answers into typed values.
//
// It knows repositories, worktrees, refs and objects, and nothing of sandboxes, invocations or
// markers. It never matches git's English messages, never goes through a shell, and never lets a
// variable that a hook or an alias left in the environment choose what it works on: the repository
// is resolved once, by Open, and named explicitly from then on.
package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Repo is one repository, resolved.
type Repo struct {
	CommonDir string // canonical; what all worktrees of the repository share
	GitDir    string // canonical; that of the worktree the caller stands in
	TopLevel  string // of that worktree, canonical; empty outside of any
	Version   Version
	Config    Config

	env       []string
	inherit   []*os.File
	rehearsal string // where everything is written instead, when nothing may change
	inHook    bool   // a git that runs a hook started us
}

// Open finds the repository that git itself would use in dir with the environment env, and checks
// that git is new enough. From here on the environment is scrubbed.
func Open(ctx context.Context, dir string, env []string) (*Repo, error) {
	asked := runner{dir: dir, env: append(plain(env), "LC_ALL=C")}

	// Three questions, one wait: a process costs more than its answer.
	version := concurrently(func() (Version, error) { return readVersion(ctx, asked) })
	config := concurrently(func() (Config, error) { return readConfig(ctx, asked) })
	repo, err := discover(ctx, asked)
	v, verr := version()
	c, cerr := config()

	switch {
	case verr != nil:
		return nil, verr
	case !v.AtLeast(Minimum):
		return nil, &TooOldError{Have: v}
	case err != nil:
		return nil, err
	case cerr != nil:
		return nil, cerr
	}
	repo.Version, repo.Config, repo.env = v, c, scrub(env)
	repo.inHook = slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_INDEX_FILE=") })
	return repo, nil
}

// Holding returns the repository as seen by somebody who holds a lock: every git that changes
// something inherits the lock's descriptor, so that the lock outlives us as long as such a git does.
func (r *Repo) Holding(lock *os.File) *Repo {
	held := *r
	held.inherit = []*os.File{lock}
	return &held
}

// endOfPath separates answers of rev-parse, which has no -z: it repeats words it does not know.
const endOfPath = "--agency-end-of-path"

func discover(ctx context.Context, run runner) (*Repo, error) {
	out, err := run.git(ctx, "rev-parse", "--path-format=absolute",
		"--git-common-dir", endOfPath, "--git-dir", endOfPath, "--show-toplevel")
	parts := strings.Split(string(out), "\n"+endOfPath+"\n")
	bare := exitedWith(err, 128) && len(parts) == 3 && parts[2] == "" // it dies of the last question, where there is no worktree
	switch {
	case err != nil && !bare:
		return nil, &NoRepositoryError{Err: err}
	case len(parts) != 3:
		return nil, fmt.Errorf("git rev-parse answered %q", out)
	}
	repo := &Repo{}
	if repo.CommonDir, err = filepath.EvalSymlinks(parts[0]); err != nil {
		return nil, err
	}
	if repo.GitDir, err = filepath.EvalSymlinks(parts[1]); err != nil {
		return nil, err
	}
	if !bare {
		if repo.TopLevel, err = filepath.EvalSymlinks(strings.TrimSuffix(parts[2], "\n")); err != nil {
			return nil, err
		}
	}
	if !utf8.ValidString(repo.CommonDir) {
		return nil, fmt.Errorf("the path of the repository, %q, is not valid UTF-8; records cannot hold it", repo.CommonDir)
	}
	return repo, nil
}

// concurrently starts f and returns a function that waits for its result.
func concurrently[T any](f func() (T, error)) func() (T, error) {
	var (
		value T
		err   error
		done  = make(chan struct{})
	)
	go func() { defer close(done); value, err = f() }()
	return func() (T, error) { <-done; return value, err }
}
