package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// ImportSubmodules imports the commits of submodules that only the sandbox has: they become ancestors of the commit at
// core.SubmoduleRef in the user's repository of the submodule. The caller has exclusive use of the sandbox and holds the
// repository lock.
func (s *Sandbox) ImportSubmodules(ctx context.Context, repo *git.Repo, h *Handle) error {
	pending, err := s.newSubmoduleCommits(ctx, repo)
	if err != nil || len(pending) == 0 {
		return err
	}
	if h.Prims.Isolation != settings.IsolationOS {
		return importDirectly(ctx, pending, s.ID)
	}
	in, err := s.enterNamespace(ctx, &Handle{
		Tree: h.Tree, overlay: h.overlay, Prims: store.Primitives{Isolation: h.Prims.Isolation, Outputs: "none"}, InvocationLock: h.InvocationLock, lockedRepo: repo,
	})
	if err != nil {
		return withoutSetupError(err)
	}
	return errors.Join(in.importSubmodules(ctx, pending), in.close())
}

// newSubmoduleCommits lists the submodules of the sandbox whose repositories have commits that the user's do not have.
func (s *Sandbox) newSubmoduleCommits(ctx context.Context, repo *git.Repo) ([]submodule.Checkout, error) {
	found, err := s.Repo.FindSubmodules(ctx, repo, git.WorktreeSpec{Name: s.ID, Dir: s.Tree})
	if err != nil {
		return nil, err
	}
	var pending []submodule.Checkout
	for _, c := range found {
		isNew, err := c.HasNewCommits(ctx)
		if err != nil {
			return nil, err
		}
		if isNew && c.Source != nil {
			pending = append(pending, c)
		}
	}
	return pending, nil
}

// importDirectly imports commits of submodules of a sandbox without walls.
func importDirectly(ctx context.Context, pending []submodule.Checkout, id string) error {
	for _, c := range pending {
		if err := c.Import(ctx, core.SubmoduleRef(id), core.ToolIdentity); err != nil {
			return fmt.Errorf("submodule %s: %w", quote.Path(c.Path), err)
		}
	}
	return nil
}

// importSubmodules imports commits of submodules from behind the walls.
func (in *nsSession) importSubmodules(ctx context.Context, pending []submodule.Checkout) error {
	for _, c := range pending {
		if err := in.handoff.ImportSubmodule(ctx, in.ns, in.treeDir, c); err != nil {
			return err
		}
	}
	return nil
}

// importSubmodulesForDiscard imports commits of submodules of a sandbox that is about to be removed, by the given function.
// A submodule that cannot be read goes to the archive.
func (s *Sandbox) importSubmodulesForDiscard(ctx context.Context, repo *git.Repo, do func([]submodule.Checkout) error) error {
	if !store.IsDir(s.Tree) {
		return nil
	}
	pending, err := s.newSubmoduleCommits(ctx, repo)
	switch {
	case err == nil:
		return do(pending)
	case core.IsContentError(ctx, err):
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
		return nil
	}
	return err
}
