package git

import (
	"context"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// CopyRequest says which files CopyFiles writes, and where.
type CopyRequest struct {
	Commit       string // required: commit whose files are written
	Dir          string // required: empty directory
	ScratchDir   string // required: path that does not exist, on any file system; git's working files are left there
	WorktreeName string // name of the worktree to which Dir belongs, if any: its configuration applies

	// UntrustedConfig: an untrusted process can write to the repository's configuration, so nothing in it applies. A
	// file that needs a filter configured only there is refused with an *UntrustedFilterError.
	UntrustedConfig bool
}

// CopyFiles writes the files of a commit into a directory that belongs to no repository, as a checkout would. Filters
// that the user configured run, hooks do not, symlinks are created and never followed, and submodules are empty
// directories. No configuration that a worktree could have changed applies, nothing is fetched, and the repository is
// not changed.
func (r *Repo) CopyFiles(ctx context.Context, c CopyRequest) error {
	r, p, err := r.prepareCopy(ctx, c)
	if err != nil {
		return err
	}
	if err := r.fsckTree(ctx, c.Commit, ""); err != nil {
		return err
	}
	if err := r.checkSmudgeFilters(ctx, c.spec(), p, c.Commit, nil); err != nil {
		return err
	}
	_, err = r.runWrite(ctx, p, "read-tree", "-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules", c.Commit)
	return err
}

// WriteCopiedIndex writes the index of a tree for a worktree whose files CopyFiles has written. Entries of unchanged
// files keep their stat data, so that git need not read them again. It removes the scratch directory.
func (r *Repo) WriteCopiedIndex(ctx context.Context, w Registration, c CopyRequest, tree string) error {
	r, p, err := r.prepareCopy(ctx, c)
	if err != nil {
		return err
	}
	// Here too the repository's own filters must not run: git re-reads files that are as new as the index.
	if _, err := r.runWrite(ctx, p, "read-tree", "-m", "-i", "--no-recurse-submodules", tree); err != nil {
		return err
	}
	if err := copyFileWithMtime(filepath.Join(c.ScratchDir, "index"), filepath.Join(r.AdminDir(w.Name), "index")); err != nil {
		return err
	}
	return durable.RemoveTree(c.ScratchDir)
}

func (c CopyRequest) spec() WorktreeSpec { return WorktreeSpec{TrustConfig: !c.UntrustedConfig} }

// prepareCopy returns where git runs for a copy, and the repository with the configuration that applies there.
func (r *Repo) prepareCopy(ctx context.Context, c CopyRequest) (*Repo, runOptions, error) {
	if c.WorktreeName != "" {
		var err error
		if r, err = r.withWorktreeConfig(ctx, r.AdminDir(c.WorktreeName), !c.UntrustedConfig); err != nil {
			return r, runOptions{}, err
		}
	}
	env, err := r.fillScratchGitDir(c.spec(), c.Commit, c.ScratchDir)
	return r, runOptions{
		gitDir: c.ScratchDir, workTree: c.Dir, env: env,
		config: append([]string{"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"}, r.checkoutWorkersConfig()...),
	}, err
}

// checkoutWorkersConfig makes git write files on all cores, unless the user configured checkout.workers.
func (r *Repo) checkoutWorkersConfig() []string {
	if _, set := r.Config["checkout.workers"]; set {
		return nil
	}
	return []string{"-c", "checkout.workers=0"}
}

// IsGitDir reports whether a directory looks like a git directory: that of a repository, or of a linked worktree.
func IsGitDir(dir string) (bool, error) {
	for _, kind := range [][]string{{"HEAD", "objects", "refs"}, {"HEAD", "commondir"}} {
		all := true
		for _, name := range kind {
			_, err := os.Lstat(filepath.Join(dir, name))
			switch {
			case err != nil && isNotExist(err):
				all = false
			case err != nil:
				return false, err
			}
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}
