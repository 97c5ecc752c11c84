package core

import (
	"context"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// openRepositoryOfSandbox opens the repository of the sandbox whose tree contains the directory of the caller, if git does not find it
// from there: a clone has a git directory of its own, and the directory of an overlay has none. found is the repository that git finds;
// nil for none. ok is false if the caller is in no such tree.
func openRepositoryOfSandbox(ctx context.Context, opts Options, found *git.Repo) (_ *git.Repo, ok bool) {
	at, inSandbox := store.FindSandbox(guard.ResolveOrEmpty(opts.Dir))
	if !inSandbox || !hidesRepository(opts, found, at) {
		return nil, false
	}
	commonDir, err := at.Store.CommonDir(at.RepoID)
	if err != nil {
		return nil, false
	}
	opts.Dir, opts.Env = commonDir, git.WithoutRepoVariables(opts.Env)
	if filepath.Base(commonDir) == ".git" {
		opts.Dir = filepath.Dir(commonDir)
	}
	repo, err := openGit(ctx, opts)
	if err != nil || repo.CommonDir != commonDir {
		return nil, false
	}
	dataDir, err := settings.DataDir(opts.Env, repo.Config)
	return repo, err == nil && dataDir == at.Store.Root
}

// hidesRepository reports whether git cannot find the repository of the sandbox around the caller. A repository that GIT_DIR names, and
// one in a subdirectory of the tree, are those that the caller wants.
func hidesRepository(opts Options, found *git.Repo, at store.SandboxPlace) bool {
	tree, named := at.Store.SandboxTreePath(at.RepoID, at.ID), proc.Getenv(opts.Env, "GIT_DIR") != ""
	switch {
	case found == nil:
		return !named
	case store.RepoID(found.CommonDir) == at.RepoID:
		return false
	case found.TopLevel == tree: // git sets GIT_DIR for hooks and aliases
		return guard.Contains(tree, found.CommonDir)
	}
	return !named && guard.Contains(found.TopLevel, tree)
}
