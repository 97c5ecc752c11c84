package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// A sandbox that is a clone has a git directory in its tree. A person works with that, and so do its commands if it has no walls;
// behind walls, another one is mounted over it. Like the git directory behind walls, it is imported into the repository, and changes of
// the repository are exported to it.

// hasOwnGitState reports whether git in the sandbox writes elsewhere than to the git directory of the repository.
func (s *Sandbox) hasOwnGitState(prims store.Primitives) bool {
	return prims.Isolation == settings.IsolationOS || s.Repo.IsClone(s.ID)
}

// isCloneWithoutWalls reports whether the sandbox is a clone without a second git directory behind walls. It is for sandboxes whose
// record, which has the isolation, is lost.
func (s *Sandbox) isCloneWithoutWalls() bool {
	return s.Repo.IsClone(s.ID) && !store.IsDir(s.Repo.InnerCloneDir(s.ID))
}

// importOutside imports commits and the index from the git directory in the tree of a clone; for other sandboxes it does nothing. repo
// is the repository if the caller holds its lock, else nil.
func (s *Sandbox) importOutside(ctx context.Context, repo *git.Repo) error {
	if !s.Repo.IsClone(s.ID) {
		return nil
	}
	if dir := s.Repo.CloneGitDir(s.ID); !store.IsDir(dir) {
		return fmt.Errorf("%s is not a directory; 'git agency doctor --fix %s' makes it again", dir, s.ID)
	}
	e, side, err := handoff.OpenOutside(s.Repo, s.ID)
	if err != nil {
		return err
	}
	if pending, err := e.HasPendingImport(); err != nil || !pending {
		return err
	}
	if repo != nil {
		e.LockedRepo, e.ScriptTimeout = repo, discardGitTimeout
	}
	err = e.Import(ctx, side, nil)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case cause != nil:
		return cause
	}
	return e.NewImportError(err)
}

// importOutsideOrWarn is importOutside that reports a failure as a warning.
func (s *Sandbox) importOutsideOrWarn(ctx context.Context) {
	if err := s.importOutside(ctx, nil); err != nil && context.Cause(ctx) == nil {
		s.warnNotImported(err, handoff.PlaceOutside)
	}
}

// exportOutsideOrWarn writes changes of the repository to the git directory in the tree of a clone, unless that has changes that
// are not imported; for other sandboxes it does nothing.
func (s *Sandbox) exportOutsideOrWarn(ctx context.Context) {
	if !s.Repo.IsClone(s.ID) {
		return
	}
	e, side, err := handoff.OpenOutside(s.Repo, s.ID)
	if err == nil {
		var pending bool
		if pending, err = e.HasPendingImport(); pending {
			return // an export would overwrite them
		}
	}
	if err == nil {
		err = e.Export(ctx, side, nil)
	}
	if err != nil && context.Cause(ctx) == nil {
		s.Repo.Warn("sandbox %s: the git directory in its tree does not have all of its commits: %v", s.ID, err)
	}
}

// exchangeWithClone exchanges git state with a clone without walls before a command runs in it, unless other commands run there, which may
// use the index. The returned function imports it after the command; if force is closed it stops, and the next command does the
// import. For other sandboxes it does nothing.
func (s *Sandbox) exchangeWithClone(ctx context.Context, prims store.Primitives, force <-chan struct{}) (after func()) {
	if prims.Isolation == settings.IsolationOS || !s.Repo.IsClone(s.ID) {
		return func() {}
	}
	if len(proc.FindSupervisors(s.Repo.Store.InvocationDir(s.Repo.ID, s.ID))) == 0 && s.importOutside(ctx, nil) == nil { // else the command may repair it
		s.exportOutsideOrWarn(ctx)
	}
	return func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		go func() {
			select {
			case <-force:
				cancel()
			case <-ctx.Done():
			}
		}()
		s.importOutsideOrWarn(ctx)
	}
}

// importOutsideForDiscard imports everything that only the git directory in the tree of a clone has, as ImportForDiscard does.
func (s *Sandbox) importOutsideForDiscard(ctx context.Context, repo *git.Repo) (refused, err error) {
	if !s.Repo.IsClone(s.ID) || !store.IsDir(s.Repo.CloneGitDir(s.ID)) {
		return nil, nil
	}
	gitDir, err := guard.OpenOwnTree(s.Repo.CloneGitDir(s.ID)) // a command may have made it unreadable
	if err == nil {
		err = gitDir.Close()
	}
	if err != nil {
		return nil, err
	}
	e, side, err := handoff.OpenOutside(s.Repo, s.ID)
	if err != nil {
		return nil, err
	}
	e.LockedRepo, e.ScriptTimeout = repo, discardGitTimeout
	return importAll(ctx, e, side, nil)
}

// checkInnerClone refuses walls around a clone without the git directory that its commands use, and makes the mount point of that if it
// is missing.
func (s *Sandbox) checkInnerClone() error {
	if inner := s.Repo.InnerCloneDir(s.ID); !store.IsDir(inner) {
		return fmt.Errorf("the git directory %s is missing; 'git agency doctor --fix %s' makes it again", inner, s.ID)
	}
	if err := os.Mkdir(s.Repo.CloneGitDir(s.ID), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.MkdirAll(s.setupLockDir(), 0o700)
}

// BeginClone makes the git directory that commands of a new clone use behind walls, and records that all agree.
func BeginClone(ctx context.Context, r *core.Repository, id string, prims store.Primitives) error {
	if prims.Isolation == settings.IsolationOS {
		if err := handoff.CopyCloneInside(r, id); err != nil {
			return err
		}
		if err := os.MkdirAll(Of(r, id).setupLockDir(), 0o700); err != nil {
			return err
		}
		if err := handoff.New(r, id).RecordRestored(ctx); err != nil {
			return err
		}
	}
	outside, _, err := handoff.OpenOutside(r, id)
	if err != nil {
		return err
	}
	return outside.RecordRestored(ctx)
}
