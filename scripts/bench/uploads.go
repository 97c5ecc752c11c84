package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// uploads is a directory that is copied into a sandbox, and elsewhere by others.
type uploads struct {
	*repository
	source  string
	sandbox string // its path
	copies  int
	puts    int
}

// newUploads makes a directory of so many files, five to a directory, and a sandbox that is not empty either.
func (b *bench) newUploads(ctx context.Context, files int) (*uploads, error) {
	repository, err := b.newRepository(ctx, "uploads", files)
	if err != nil {
		return nil, err
	}
	if _, err := repository.start(ctx); err != nil {
		return nil, err
	}
	u := &uploads{repository: repository, source: filepath.Join(repository.dir, "src")}
	u.sandbox, err = repository.sandboxPath(ctx, repository.sandboxes[0])
	return u, err
}

// copy is what everybody else does.
func (u *uploads) copy(ctx context.Context) (time.Duration, error) {
	u.copies++
	to := filepath.Join(u.b.root, fmt.Sprintf("copy-%d", u.copies))
	_, took, err := u.b.run(ctx, command{argv: []string{"cp", "-r", u.source, to}, dir: u.dir})
	return took, err
}

// put is the tool's.
func (u *uploads) put(ctx context.Context) (time.Duration, error) {
	u.puts++
	_, took, err := u.b.agency(ctx, u.dir, "put", u.sandboxes[0], u.source, u.last())
	return took, err
}

// last is where in the sandbox the last put went.
func (u *uploads) last() string { return fmt.Sprintf("put-%d", u.puts) }

// check compares what was put with what it was made from.
func (u *uploads) check(ctx context.Context) error {
	_, _, err := u.b.run(ctx, command{argv: []string{"diff", "-r", u.source, filepath.Join(u.sandbox, u.last())}, dir: u.dir})
	return err
}
