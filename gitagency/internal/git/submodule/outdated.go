package submodule

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Outdated is a submodule in a worktree of the user that is at another commit than the index of the worktree has for it, or
// whose files are not checked out.
type Outdated struct {
	Tree   string // worktree
	Path   string // path of the submodule in it
	Commit string // commit in the index
	Source string // repository from which the submodule has to fetch the commit first; empty: it has the commit
	Empty  bool   // HEAD is at the commit, but no file is checked out, as after "git clone --no-checkout"
}

// FindOutdated reports whether a submodule in a worktree of the user is outdated, and can be updated without the network. It is
// never one that is not checked out there, unless isNew says that the worktree has only now got it.
func FindOutdated(ctx context.Context, r *git.Repo, tree string, m Module, isNew bool) (o Outdated, outdated bool, err error) {
	o = Outdated{Tree: tree, Path: m.Path, Commit: m.Commit}
	dir, err := git.DotGitTarget(filepath.Join(tree, m.Path))
	if err != nil {
		return o, false, err
	}
	userRepo := filepath.Join(Dir(r), m.Name)
	if dir == "" {
		// Git uses a repository that exists, but that of a submodule in a linked worktree is in the entry of the worktree.
		main, err := git.DotGitTarget(tree)
		if err != nil || !isNew || main != r.CommonDir {
			return o, false, err
		}
		outdated, err = git.IsGitDir(userRepo)
		return o, outdated, err
	}
	if is, err := git.IsGitDir(dir); err != nil || !is {
		return o, false, err
	}
	repo, err := openAt(ctx, r, m.Name, dir)
	if err != nil {
		return o, false, err
	}
	found, err := repo.Lookup(ctx, "HEAD^{commit}", m.Commit+"^{commit}")
	if err != nil {
		return o, false, err
	}
	if found[0].OID == m.Commit {
		if _, err := os.Lstat(filepath.Join(dir, "index")); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return o, false, err
		}
		names, err := listBeneath(tree, m.Path)
		o.Empty = err == nil && slices.Equal(names, []string{".git"})
		return o, o.Empty, err
	}
	if !found[1].Missing() {
		unreferenced, err := listUnreferenced(ctx, repo, []string{m.Commit})
		if err != nil || len(unreferenced) == 0 {
			return o, err == nil, err
		}
	}
	o.Source = userRepo
	exists, err := git.IsGitDir(userRepo)
	return o, exists && userRepo != dir, err
}
