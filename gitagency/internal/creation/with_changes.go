package creation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// uncommittedWork is the uncommitted work in the tree of an integration worktree. The tree belongs to the user, so git
// reads it as the user's own git does; its index and its files stay as they are.
type uncommittedWork struct {
	r    *core.Repository
	repo *git.Repo
	tree string
	run  git.RunOptions
}

// openChanges prepares to read the uncommitted work of a worktree. While any sandbox on record has no walls, an agent could
// have written the configuration of the repository: filters that only this configuration names are then refused.
func openChanges(r *core.Repository, repo *git.Repo, wt core.Worktree) (uncommittedWork, error) {
	gitDir, err := core.GitDirOf(repo, wt.TreePath)
	if filters := repo.UntrustedFilters(); err == nil && len(filters) > 0 && !r.AllSandboxesWalled() {
		err = &git.UntrustedFilterError{Path: wt.TreePath, Filter: filters[0]}
	}
	return uncommittedWork{r: r, repo: repo, tree: wt.TreePath, run: git.RunOptions{GitDir: gitDir, WorkTree: wt.TreePath}}, err
}

// startPoint returns a start point with the uncommitted work: HEAD, the index and all files that are neither ignored nor
// look like credentials. It writes objects, but no ref.
func (c uncommittedWork) startPoint(ctx context.Context, head string) (_ StartPoint, err error) {
	dir, err := git.MakeTempDir()
	if err != nil {
		return StartPoint{}, err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	run, index := c.run, filepath.Join(dir.Path, "index")
	run.Env = append(run.Env, "GIT_INDEX_FILE="+index)
	if err := copyIndex(filepath.Join(c.run.GitDir, "index"), index); err != nil {
		return StartPoint{}, err
	}
	staged, err := c.writeTree(ctx, run)
	if err != nil {
		return StartPoint{}, err
	}
	if err := c.addFiles(ctx, run); err != nil {
		return StartPoint{}, err
	}
	files, err := c.writeTree(ctx, run)
	if err != nil {
		return StartPoint{}, err
	}
	author := core.ToolIdentity
	run.Env = append(run.Env, "GIT_AUTHOR_NAME="+author.Name, "GIT_AUTHOR_EMAIL="+author.Email, "GIT_COMMITTER_NAME="+author.Name, "GIT_COMMITTER_EMAIL="+author.Email)
	message := "agency: uncommitted work of " + c.tree + "\n" + snapshot.State{Head: head, IndexTree: staged}.Trailers()
	commit, err := c.repo.RunWrite(ctx, run, "commit-tree", "--no-gpg-sign", "-p", head, "-m", message, files)
	return StartPoint{Base: head, Snapshot: strings.TrimSpace(string(commit)), Head: head, index: staged}, err
}

// copyIndex copies the index of a worktree; one without an index has no tracked files. The copy has the time of the original:
// by that git recognises files that were changed right after the index was written, which it must read.
func copyIndex(from, to string) error {
	err := git.CopyFileWithMtime(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeTree writes the index as a tree. An index with conflicts cannot be written.
func (c uncommittedWork) writeTree(ctx context.Context, run git.RunOptions) (string, error) {
	out, err := c.repo.RunWrite(ctx, run, "write-tree")
	if git.ExitedWith(err, 128) {
		if unmerged, listErr := c.repo.RunRead(ctx, run, "ls-files", "--unmerged", "-z"); listErr == nil && len(unmerged) > 0 {
			return "", fmt.Errorf("%s has unmerged paths; finish or abort the merge there first", c.tree)
		}
	}
	return strings.TrimSpace(string(out)), err
}

// addFiles adds the changed and untracked files to the copied index.
func (c uncommittedWork) addFiles(ctx context.Context, run git.RunOptions) error {
	// Not "git add --update": that would run git in submodules, with configuration that an agent without walls can write.
	changed, err := c.repo.RunRead(ctx, run, "diff-files", "--name-only", "--no-renames", "--ignore-submodules=all", "-z")
	if err != nil {
		return err
	}
	run.Stdin = string(changed)
	if _, err := c.repo.RunWrite(ctx, run, "update-index", "--add", "--remove", "-z", "--stdin"); err != nil {
		return err
	}
	out, err := c.repo.RunRead(ctx, run, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	secrets, err := c.r.Settings.SecretPatterns()
	if err != nil {
		return err
	}
	spec := git.WorktreeSpec{SecretPatterns: secrets}
	var names strings.Builder
	left := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		switch {
		case name == "" || strings.HasSuffix(name, "/"): // a nested repository
		case spec.LooksSecret(name):
			left++
		default:
			names.WriteString(name + "\x00")
		}
	}
	if left > 0 {
		c.r.Warn("untracked files of %s that look like credentials are not in the sandbox: %d (agency.secret)", c.tree, left)
	}
	if names.Len() == 0 {
		return nil
	}
	run.Stdin = names.String()
	_, err = c.repo.RunWrite(ctx, run, "update-index", "--add", "-z", "--stdin")
	return err
}

// changesStartPoint returns a start point with the uncommitted work of a worktree, which has the commit head checked out.
func changesStartPoint(ctx context.Context, r *core.Repository, repo *git.Repo, wt core.Worktree, head string) (StartPoint, error) {
	changes, err := openChanges(r, repo, wt)
	if err != nil {
		return StartPoint{}, err
	}
	point, err := changes.startPoint(ctx, head)
	if err != nil {
		return StartPoint{}, fmt.Errorf("read the uncommitted work in %s: %w", wt.TreePath, err)
	}
	return point, nil
}
