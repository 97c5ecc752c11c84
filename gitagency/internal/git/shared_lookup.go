package git

import (
	"context"
	"slices"
	"sync"
)

// sharedLookup is a git cat-file that answers all lookups of a transaction: starting one takes longer than its answers. It reads
// refs and objects anew for each question. Its methods are safe for concurrent use.
type sharedLookup struct {
	mu     sync.Mutex
	env    []string // environment of the git; a repository with another one does not use it
	git    *CatFile // nil until the first lookup, and after a failure
	closed bool
}

// WithSharedLookups returns a copy of the repository whose lookups share a git, until done is called.
func (r *Repo) WithSharedLookups() (shared *Repo, done func()) {
	same := *r
	same.lookups = &sharedLookup{env: r.RunnerFor(RunOptions{}, nil).Env}
	return &same, same.lookups.close
}

func (l *sharedLookup) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.drop()
}

func (l *sharedLookup) drop() {
	if l.git != nil {
		l.git.Close()
		l.git = nil
	}
}

// lookup is Repo.Lookup with the shared git. It reports false if that cannot be used.
func (l *sharedLookup) lookup(ctx context.Context, r *Repo, names []string) (found []Object, answered bool, err error) {
	if l == nil || !l.mu.TryLock() {
		return nil, false, nil
	}
	defer l.mu.Unlock()
	if l.closed || !slices.Equal(l.env, r.RunnerFor(RunOptions{}, nil).Env) {
		return nil, false, nil
	}
	if l.git == nil {
		if l.git, err = r.OpenCatFile(context.WithoutCancel(ctx)); err != nil {
			return nil, true, err
		}
	}
	stop := context.AfterFunc(ctx, l.git.process.Stop)
	found, err = l.git.Lookup(names...)
	if !stop() || err != nil { // it is ended, or its next answer is unknown
		l.drop()
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, true, cause
	}
	return found, true, err
}
