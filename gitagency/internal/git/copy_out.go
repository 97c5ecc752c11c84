package git

import (
	"context"
	"os"
	"path/filepath"
)

// CopyOut writes the files of a commit into an empty directory that belongs to no repository, as a checkout would:
// filters that the user configured run, hooks do not, links are made and never followed, submodules are empty
// directories. trusted is what Subject.Trusted says of whose state it is. scratch is a directory of ours, on any file system, that git keeps an index in meanwhile. Nothing that a
// worktree could have configured counts, nothing is fetched, and the repository is not changed.
func (r *Repo) CopyOut(ctx context.Context, commit, scratch, dir string, trusted bool) error {
	s := Subject{Trusted: trusted}
	env, err := r.fillScratch(s, commit, scratch)
	if err != nil {
		return err
	}
	p := place{
		gitDir: scratch, tree: dir, env: env,
		config: append([]string{"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"}, r.workers()...),
	}
	if err := r.unfilteredThere(ctx, s, p, commit, nil); err != nil {
		return err
	}
	_, err = r.change(ctx, p, "read-tree", "-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules", commit)
	return err
}

// workers tells git to write files on every core there is, unless the user said otherwise.
func (r *Repo) workers() []string {
	if _, set := r.Config["checkout.workers"]; set {
		return nil
	}
	return []string{"-c", "checkout.workers=0"}
}

// IsGitDir reports whether a directory looks like git's own: that of a repository, or the entry of a linked worktree.
func IsGitDir(dir string) (bool, error) {
	for _, kind := range [][]string{{"HEAD", "objects", "refs"}, {"HEAD", "commondir"}} {
		all := true
		for _, name := range kind {
			_, err := os.Lstat(filepath.Join(dir, name))
			switch {
			case err != nil && nothingThere(err):
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
