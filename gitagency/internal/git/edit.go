package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// expandIndexCopy lets git write a plain index file of the data of a split or sparse one, in a temporary directory. at is
// the mtime of that file, by which git tells which entries are racy.
func (r *Repo) expandIndexCopy(ctx context.Context, gitDir string, data []byte, at time.Time) (_ []byte, err error) {
	if err := os.MkdirAll(r.AgencyDir(), 0o777); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.AgencyDir(), CapturePrefix+"index-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	plain := filepath.Join(dir, "index")
	if err := errors.Join(os.WriteFile(plain, data, 0o600), os.Chtimes(plain, at, at)); err != nil {
		return nil, err
	}
	p := RunOptions{
		GitDir: gitDir, Env: []string{"GIT_INDEX_FILE=" + plain}, NoFsync: true,
		Config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.untrackedCache=false"},
	}
	if _, err := r.RunWrite(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return nil, err
	}
	return os.ReadFile(plain)
}
