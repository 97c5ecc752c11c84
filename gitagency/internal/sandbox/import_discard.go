package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// ImportForDiscard imports everything that only the git directory behind the walls or that of a clone has, for a sandbox that is
// about to be removed. The caller holds the repository lock in repo and the exclusive lock of the sandbox in held. refused is
// the reason why some content of the sandbox cannot be imported; err is a failure of this machine.
func (s *Sandbox) ImportForDiscard(ctx context.Context, repo *git.Repo, prims store.Primitives, held *os.File) (refused, err error) {
	refusedOutside, err := s.importOutsideForDiscard(ctx, repo)
	if err != nil {
		return nil, err
	}
	refused, err = s.importInsideForDiscard(ctx, repo, prims, held)
	return errors.Join(refusedOutside, refused), err
}

// importInsideForDiscard is ImportForDiscard for the git directory behind the walls.
func (s *Sandbox) importInsideForDiscard(ctx context.Context, repo *git.Repo, prims store.Primitives, held *os.File) (refused, err error) {
	if prims.Isolation != settings.IsolationOS || s.isCloneWithoutWalls() {
		return nil, s.importSubmodulesForDiscard(ctx, repo, func(pending []submodule.Checkout) error {
			err := importDirectly(ctx, pending, s.ID)
			if core.IsContentError(ctx, err) {
				s.Repo.Warn("sandbox %s: %v", s.ID, err)
				return nil
			}
			return err
		})
	}
	if gitDir := s.Repo.CloneGitDir(s.ID); s.Repo.IsClone(s.ID) && store.IsDir(s.Tree) && !store.IsDir(gitDir) { // nothing to mount the other one on
		return fmt.Errorf("%s is not a directory, so that git cannot run behind the walls", gitDir), nil
	}
	d, err := handoff.Open(s.Repo, s.ID, nil)
	if err != nil {
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
	}
	if layer, err := d.FingerprintUpper(); err != nil || layer == "" {
		return nil, err
	}
	if !store.IsDir(s.Tree) || held == nil {
		unimported, err := d.HasUnimported(ctx)
		if err == nil && unimported {
			refused = errors.New("the tree or the record is gone, so that git cannot run there")
		}
		return refused, err
	}
	tree, err := guard.OpenOwnTree(s.Tree)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if err := checkSandbox(tree); err != nil {
		return nil, err
	}
	layers, err := s.Repo.OverlayTree(s.ID)
	if err != nil {
		return nil, err
	}
	in, err := s.enterNamespace(ctx, &Handle{Tree: tree, overlay: layers, Prims: store.Primitives{Isolation: prims.Isolation, Outputs: "none"}, InvocationLock: held, lockedRepo: repo})
	if err != nil {
		return nil, withoutSetupError(err)
	}
	submodules := func(ctx context.Context, _ handoff.Inside, _ *os.File) error {
		return s.importSubmodulesForDiscard(ctx, repo, func(pending []submodule.Checkout) error { return in.importSubmodules(ctx, pending) })
	}
	refused, err = importAll(ctx, in.handoff, in.ns, in.treeDir, submodules)
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	return refused, in.close()
}

// importAll imports everything that a git directory has, and runs further imports. refused is the reason why some content of the
// sandbox cannot be imported.
func importAll(ctx context.Context, e *handoff.Exchange, side handoff.Inside, dir *os.File, further ...func(context.Context, handoff.Inside, *os.File) error) (refused, err error) {
	for _, importStep := range append([]func(context.Context, handoff.Inside, *os.File) error{e.Import, e.ImportRemaining}, further...) {
		err := importStep(ctx, side, dir)
		switch {
		case err == nil || fault.Is[*handoff.DivergedError](err): // ImportRemaining includes the diverged commits
		case e.IsSandboxFault(err):
			if refused == nil || refused.Error() != err.Error() { // one object may keep both from being imported
				refused = errors.Join(refused, err)
			}
		default:
			return nil, fmt.Errorf("git state %s cannot be kept: %w", e.Place(), err)
		}
	}
	return refused, nil
}
