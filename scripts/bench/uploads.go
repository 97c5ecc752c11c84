package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// uploadRepo is a directory that is uploaded into a sandbox, and copied elsewhere for comparison.
type uploadRepo struct {
	*repository
	source  string
	sandbox string // path of its tree
	copies  int
	puts    int
}

// newUploadRepo creates a directory of files, five to a subdirectory, and a sandbox that is not empty either.
func (b *bench) newUploadRepo(ctx context.Context, files int) (*uploadRepo, error) {
	repository, err := b.newRepository(ctx, "uploads", files)
	if err != nil {
		return nil, err
	}
	if _, err := repository.startSandbox(ctx); err != nil {
		return nil, err
	}
	u := &uploadRepo{repository: repository, source: filepath.Join(repository.dir, "src")}
	u.sandbox, err = repository.sandboxPath(ctx, repository.sandboxes[0])
	return u, err
}

// copyWithCP copies the directory with cp.
func (u *uploadRepo) copyWithCP(ctx context.Context) (time.Duration, error) {
	u.copies++
	to := filepath.Join(u.b.root, fmt.Sprintf("copy-%d", u.copies))
	_, took, err := u.b.run(ctx, command{argv: []string{"cp", "-r", u.source, to}, dir: u.dir})
	return took, err
}

// put uploads the directory with git-agency.
func (u *uploadRepo) put(ctx context.Context) (time.Duration, error) {
	u.puts++
	_, took, err := u.b.agency(ctx, u.dir, "put", u.sandboxes[0], u.source, u.lastPutDir())
	return took, err
}

// lastPutDir returns the target of the last put, relative to the sandbox.
func (u *uploadRepo) lastPutDir() string { return fmt.Sprintf("put-%d", u.puts) }

// checkLastPut compares the uploaded files with their source.
func (u *uploadRepo) checkLastPut(ctx context.Context) error {
	_, _, err := u.b.run(ctx, command{argv: []string{"diff", "-r", u.source, filepath.Join(u.sandbox, u.lastPutDir())}, dir: u.dir})
	return err
}
