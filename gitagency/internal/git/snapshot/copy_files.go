package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// CopyRequest says which files CopyFiles writes, and where.
type CopyRequest struct {
	Commit       string // required: commit whose files are written
	Dir          string // required: empty directory
	ScratchDir   string // required: path that does not exist, on any file system; git's working files are left there
	WorktreeName string // name of the worktree to which Dir belongs, if any: its configuration applies

	// UntrustedConfig: an untrusted process can write to the repository's configuration, so nothing in it applies. A
	// file that needs a filter configured only there is refused with a *git.UntrustedFilterError.
	UntrustedConfig bool
}

// CopyFiles writes the files of a commit into a directory that belongs to no repository, as a checkout would. Filters
// that the user configured run, hooks do not, symlinks are created and never followed, and submodules are empty
// directories. No configuration that a worktree could have changed applies, nothing is fetched, and the repository is
// not changed.
func CopyFiles(ctx context.Context, r *git.Repo, c CopyRequest) error {
	r, p, err := prepareCopy(ctx, r, c)
	if err != nil {
		return err
	}
	if err := fsck.CheckTree(ctx, r, c.Commit, ""); err != nil {
		return err
	}
	if err := r.CheckSmudgeFilters(ctx, c.spec(), p, c.Commit, nil); err != nil {
		return err
	}
	_, err = r.RunWrite(ctx, p, "read-tree", "-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules", c.Commit)
	return err
}

// WriteCopiedIndex writes the index of a tree for a worktree whose files CopyFiles has written. Entries of unchanged
// files keep their stat data, so that git need not read them again. It removes the scratch directory.
func WriteCopiedIndex(ctx context.Context, r *git.Repo, w worktree.Registration, c CopyRequest, tree string) error {
	r, p, err := prepareCopy(ctx, r, c)
	if err != nil {
		return err
	}
	// Set the mtime of the index later than that of every file, so that git does not read files again: it would evaluate
	// attributes that an agent may have staged. CopyFiles has just written the files.
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(c.ScratchDir, "index"), later, later); err != nil {
		return err
	}
	if _, err := r.RunWrite(ctx, p, "read-tree", "-m", "-i", "--no-recurse-submodules", tree); err != nil {
		return err
	}
	if err := git.CopyFileWithMtime(filepath.Join(c.ScratchDir, "index"), filepath.Join(r.AdminDir(w.Name), "index")); err != nil {
		return err
	}
	return durable.RemoveTree(c.ScratchDir)
}

func (c CopyRequest) spec() git.WorktreeSpec {
	return git.WorktreeSpec{TrustConfig: !c.UntrustedConfig}
}

// prepareCopy returns where git runs for a copy, and the repository with the configuration that applies there.
func prepareCopy(ctx context.Context, r *git.Repo, c CopyRequest) (*git.Repo, git.RunOptions, error) {
	if c.WorktreeName != "" {
		var err error
		if r, err = r.WithWorktreeConfig(ctx, r.AdminDir(c.WorktreeName), !c.UntrustedConfig); err != nil {
			return r, git.RunOptions{}, err
		}
	}
	env, err := r.FillScratchGitDir(c.spec(), c.Commit, c.ScratchDir)
	return r, git.RunOptions{
		GitDir: c.ScratchDir, WorkTree: c.Dir, Env: env,
		Config:  append([]string{"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"}, r.CheckoutWorkersConfig()...),
		Reading: r.CheckoutReading("the checkout of " + c.Commit),
	}, err
}
