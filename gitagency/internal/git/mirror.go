package git

import (
	"context"
	"errors"
	"io/fs"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// GitOptions returns the options of a git that runs on the temporary git directory.
func (m *Mirror) GitOptions() RunOptions { return RunOptions{GitDir: m.Dir} }

// Mirror is a temporary git directory with the repository's objects as an alternate, for comparing and merging. It has
// the user's config, but not the repository's config, attributes, replace refs and refs, all of which an agent without
// walls could have written. New objects go into the temporary directory and are deleted with it.
type Mirror struct {
	Repo    *Repo
	Dir     string        // path of Scratch
	Scratch *OwnedTempDir // the temporary git directory
}

// NewMirror makes a Mirror. like is any object id of the repository, from which its object format is derived.
func (r *Repo) NewMirror(like string) (_ *Mirror, err error) {
	scratch, err := MakeTempDir()
	if err != nil {
		return nil, err
	}
	dir := scratch.Path
	m := &Mirror{Dir: dir, Scratch: scratch}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := InitBareAs(dir, object.FormatOf(like)); err != nil {
		return nil, err
	}
	m.Repo = r.DryRunRepo(dir)
	return m, nil
}

// Close deletes the temporary git directory.
func (m *Mirror) Close() error { return m.Scratch.Remove() }

// Head returns the commit of a worktree's HEAD.
func (r *Repo) Head(ctx context.Context, s WorktreeSpec) (string, error) {
	head, _, err := r.HeadAndBranch(ctx, s)
	return head, err
}

// ResolvedCommit is a commit with its tree.
type ResolvedCommit struct {
	Commit, Tree string // empty: no such commit
	Err          error
}

// ResolveHeads resolves HEAD of some worktrees, and the name of a ref or commit, with one git process. Worktrees that
// cannot be read for lack of permission have their error in Err.
func (r *Repo) ResolveHeads(ctx context.Context, subjects []WorktreeSpec, name string) (heads []ResolvedCommit, named ResolvedCommit, err error) {
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return nil, ResolvedCommit{}, err
	}
	defer t.Close()
	names := []string{name}
	heads = make([]ResolvedCommit, len(subjects))
	for i, s := range subjects {
		heads[i].Commit, _, err = r.HeadAndBranchWith(s, t.Lookup)
		if errors.Is(err, fs.ErrPermission) {
			heads[i].Err, err = err, nil
		}
		if err != nil {
			return nil, ResolvedCommit{}, err
		}
		names = append(names, heads[i].Commit)
	}
	for i, name := range names {
		found, err := t.Lookup(name+"^{commit}", name+"^{tree}")
		if err != nil {
			return nil, ResolvedCommit{}, err
		}
		at := ResolvedCommit{Commit: found[0].OID, Tree: found[1].OID}
		if i == 0 {
			named = at
		} else if at.Err = heads[i-1].Err; at.Err == nil {
			heads[i-1] = at
		}
	}
	return heads, named, nil
}
