package sandbox

import (
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// withTree calls do with the tree of an open sandbox. An overlay is mounted meanwhile, behind the walls of the sandbox: outside
// there is no tree.
func (s *Sandbox) withTree(ctx context.Context, h *Handle, do func(*guard.Tree) error) error {
	if h.overlay == nil {
		return do(h.Tree)
	}
	in, err := s.enterNamespace(ctx, h)
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

// openTree opens the tree of a sandbox, as the commands in it see it, for this process.
func (in *nsSession) openTree() (*guard.Tree, error) {
	return guard.OpenMountedTree(in.treeDir, in.sandbox.Tree)
}
