package git

import (
	"context"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Copying says what files to write, and where to.
type Copying struct {
	Commit  string // required: whose files
	Dir     string // required: an empty directory
	Scratch string // required: a path that nothing is at, on any file system; what git needs meanwhile is left there
	Name    string // of the worktree's entry, where the directory is that of a worktree: what is set for that counts

	// Distrust: somebody who is not trusted can write to the configuration of the repository, and nothing of it
	// counts. A file that would need a filter which only that has is refused with a *DistrustedError.
	Distrust bool
}

// CopyOut writes the files of a commit into a directory that belongs to no repository, as a checkout would: filters
// that the user configured run, hooks do not, links are made and never followed, submodules are empty directories.
// Nothing that a worktree could have configured counts, nothing is fetched, and the repository is not changed.
func (r *Repo) CopyOut(ctx context.Context, c Copying) error {
	r, p, err := r.copying(ctx, c)
	if err != nil {
		return err
	}
	if err := r.sound(ctx, c.Commit, ""); err != nil {
		return err
	}
	if err := r.mayWrite(ctx, c.subject(), p, c.Commit, nil); err != nil {
		return err
	}
	_, err = r.change(ctx, p, "read-tree", "-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules", c.Commit)
	return err
}

// StageCopied makes an index for a worktree whose files were copied by CopyOut: that of a tree. What is the same in it is known
// to be, and need not be read again. The scratch directory goes.
func (r *Repo) StageCopied(ctx context.Context, w Registration, c Copying, tree string) error {
	r, p, err := r.copying(ctx, c)
	if err != nil {
		return err
	}
	// Also here the filters must not be those of the repository: what is as young as the index is read again for it.
	if _, err := r.change(ctx, p, "read-tree", "-m", "-i", "--no-recurse-submodules", tree); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(c.Scratch, "index"), filepath.Join(r.AdminDir(w.Name), "index")); err != nil {
		return err
	}
	return durable.RemoveTree(c.Scratch)
}

func (c Copying) subject() Subject { return Subject{Trusted: !c.Distrust} }

// copying is where git works while it copies, and the repository as it is seen there.
func (r *Repo) copying(ctx context.Context, c Copying) (*Repo, place, error) {
	if c.Name != "" {
		var err error
		if r, err = r.in(ctx, r.AdminDir(c.Name), !c.Distrust); err != nil {
			return r, place{}, err
		}
	}
	env, err := r.fillScratch(c.subject(), c.Commit, c.Scratch)
	return r, place{
		gitDir: c.Scratch, tree: c.Dir, env: env,
		config: append([]string{"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"}, r.workers()...),
	}, err
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
