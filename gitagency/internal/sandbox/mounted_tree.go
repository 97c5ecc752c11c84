package sandbox

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// withTree calls do with the tree of an open sandbox. An overlay is mounted meanwhile, behind the walls of the sandbox: outside
// there is no tree.
func (s *Sandbox) withTree(ctx context.Context, h *Handle, do func(*guard.Tree) error) error {
	if h.overlay == nil {
		return do(h.Tree)
	}
	in, err := s.enterForOwn(ctx, h)
	if err != nil {
		return withoutSetupError(err)
	}
	tree, err := in.openTree()
	if err == nil {
		err = errors.Join(do(tree), tree.Close())
	}
	in.leave(ctx, ctx.Done())
	return err
}

// mountForChange mounts the tree of a sandbox that is an overlay, so that its files can be changed on this side of the walls. The
// caller has exclusive use of the sandbox, and calls release in the end. For other trees the result is nil.
func (s *Sandbox) mountForChange(ctx context.Context, repo *git.Repo, h *Handle) (_ *git.MountedTree, release func(), err error) {
	if h.overlay == nil {
		return nil, func() {}, nil
	}
	in, err := s.enterNamespace(ctx, &Handle{
		Tree: h.Tree, overlay: h.overlay, Prims: store.Primitives{Isolation: h.Prims.Isolation, Outputs: "none"}, InvocationLock: h.InvocationLock, lockedRepo: repo,
	})
	if err != nil {
		return nil, nil, withoutSetupError(err)
	}
	release = func() {
		if err := in.close(); err != nil {
			s.Repo.Warn("%s: %v", s.Tree, err)
		}
	}
	return &git.MountedTree{Path: s.Tree, Dir: in.treeDir, Clone: func(ctx context.Context) (*os.File, error) { return in.ns.CloneMount(ctx, s.Tree) }}, release, nil
}

// RecoverUploads rolls back uploads to the sandbox that were killed; see upload.Recover.
func (s *Sandbox) RecoverUploads(ctx context.Context, timeout time.Duration) error {
	h, err := s.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.withTree(ctx, h, func(tree *guard.Tree) error {
		return upload.Recover(ctx, s.UploadTarget(tree), timeout)
	}), h.Close())
}

// recoverUploadsInOverlay rolls back the uploads to an overlay that were killed, whose files are not in the directory of the
// marker. It only warns of files that cannot go back to their place.
func (s *Sandbox) recoverUploadsInOverlay(ctx context.Context, h *Handle, timeout time.Duration) error {
	if h.overlay == nil {
		return nil
	}
	upper, err := guard.OpenOwnTree(h.overlay.Upper)
	if err != nil {
		return err
	}
	found, err := upload.FindInterrupted(ctx, s.UploadTarget(upper))
	if err = errors.Join(err, upper.Close()); err != nil || len(found) == 0 {
		return err
	}
	return s.withTree(ctx, h, func(tree *guard.Tree) error {
		err := upload.Recover(ctx, s.UploadTarget(tree), timeout)
		if fault.Is[*upload.IncompleteUndoError](err) {
			s.Repo.Warn("sandbox %s: %v", s.ID, err)
			return nil
		}
		return err
	})
}

// openTree opens the tree of a sandbox, as the commands in it see it, for this process.
func (in *nsSession) openTree() (*guard.Tree, error) {
	return guard.OpenMountedTree(in.treeDir, in.sandbox.Tree)
}
