package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// uploadRepo is a directory that is uploaded into a sandbox, and copied elsewhere for comparison.
type uploads struct {
	*repository
	source  string
	sandbox string // path of its tree
	copies  int
	puts    int
}

// newUploadRepo creates a directory of files, five to a subdirectory, and a sandbox that is not empty either.
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

// copyWithCP copies the directory with cp.
func (u *uploads) copy(ctx context.Context) (time.Duration, error) {
	u.copies++
	to := filepath.Join(u.b.root, fmt.Sprintf("copy-%d", u.copies))
	_, took, err := u.b.run(ctx, command{argv: []string{"cp", "-r", u.source, to}, dir: u.dir})
	return took, err
}

// put uploads the directory with git-agency.
func (u *uploads) put(ctx context.Context) (time.Duration, error) {
	u.puts++
	_, took, err := u.b.agency(ctx, u.dir, "put", u.sandboxes[0], u.source, u.last())
	return took, err
}

// lastPutDir returns the target of the last put, relative to the sandbox.
func (u *uploads) last() string { return fmt.Sprintf("put-%d", u.puts) }

// checkLastPut compares the uploaded files with their source.
func (u *uploads) check(ctx context.Context) error {
	_, _, err := u.b.run(ctx, command{argv: []string{"diff", "-r", u.source, filepath.Join(u.sandbox, u.last())}, dir: u.dir})
	return err
}
