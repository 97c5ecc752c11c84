package status

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// isAttributesFile reports whether git reads attributes from a file of this path, on some file system.
func isAttributesFile(name string) bool {
	return index.PatternFile([]byte(path.Base(name))) == index.AttributesFile
}

// AttributesCheck checks the attribute files in a worktree before a git works in the worktree itself. Some of them may be
// ignored, so that no capture has checked them.
type AttributesCheck struct {
	tree *beneath.Dir
	repo *git.Repo
	head string          // commit whose patterns are allowed
	dirs map[string]bool // directories whose attribute files were checked
}

// OpenAttributesCheck opens a worktree. The patterns of its commit head are allowed. The result has to be closed.
func OpenAttributesCheck(r *git.Repo, s git.WorktreeSpec, head string) (*AttributesCheck, error) {
	tree, err := OpenTree(s)
	if err != nil {
		return nil, err
	}
	return &AttributesCheck{tree: tree, repo: r, head: head, dirs: map[string]bool{}}, nil
}

func (c *AttributesCheck) Close() error { return c.tree.Close() }

// CheckFor checks the attribute files that apply to a path. One that adds a slow pattern is a *fsck.Error.
func (c *AttributesCheck) CheckFor(ctx context.Context, name string) error {
	for dir := path.Dir(name); !c.dirs[dir]; dir = path.Dir(dir) {
		c.dirs[dir] = true
		if err := c.checkFile(ctx, path.Join(dir, index.AttributesFile)); err != nil {
			return err
		}
	}
	return nil
}

// checkFile checks an attribute file. As in git, a symlink or an unreadable file counts as none.
func (c *AttributesCheck) checkFile(ctx context.Context, name string) (err error) {
	f, st, err := c.tree.OpenFile(name)
	var irregular *beneath.NotRegularError
	if beneath.IsGone(err) || errors.As(err, &irregular) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err := readAttributes(c.repo, f, st.Size)
	if err != nil {
		return err
	}
	return fsck.CheckAttributes(ctx, c.repo, fsck.NewRuleFile(name, content, c.head))
}

// readAttributes reads the first size bytes of an attribute file, within the limits.
func readAttributes(r *git.Repo, f *os.File, size int64) ([]byte, error) {
	if err := r.ReadLimits.CheckSize(f.Name(), readlimit.Output, size); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, size))
}
