package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// Options configures Open. The zero value is right for most callers.
type Options = core.Options

// Repository is an open repository together with its records.
type Repository struct {
	ID        string // repo_id of the records
	CommonDir string // git common dir, canonical path
	DataDir   string // canonical path

	core *core.Repository
}

// Open opens the repository that git itself would use in the caller's environment.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	opts.Recover = landing.Recover
	r, err := core.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &Repository{ID: r.ID, CommonDir: r.CommonDir, DataDir: r.DataDir, core: r}, nil
}
