package creation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// restoreVerb is the verb of steps and intents of a restore.
const restoreVerb = "restore"

// Restore makes a new sandbox with the content of one that has ended: the commit at HEAD, the changed, staged and
// untracked files, and the files of its archive. The primitives, limits, grants and name are those of the old invocation, which
// stays as it is. An operation that was in progress is not restored.
func Restore(ctx context.Context, r *core.Repository, query string) (core.Invocation, error) {
	ended, err := r.Invocation(query)
	if err != nil {
		return core.Invocation{}, err
	}
	if err := ended.Err(); err != nil {
		return core.Invocation{}, err
	}
	if !ended.Entry.Record.HasEnded() {
		return core.Invocation{}, &fault.NotEndedError{ID: ended.ID}
	}
	software, err := sandbox.UseRestored(ctx, r, ended.Entry.Record.Primitives) // before the lock: unpacking an image may take long
	if err != nil {
		return core.Invocation{}, err
	}
	defer software.Close()
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return core.Invocation{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, ended.ID, nil) // may have been pruned while waiting for the lock
	if entry.Defect != store.NoDefect || !entry.Record.HasEnded() {
		return core.Invocation{}, &fault.NotFoundError{Kind: "invocation", Query: query}
	}
	plan, err := planRestore(ctx, r, repo, entry, software)
	if err != nil {
		return core.Invocation{}, err
	}
	inv, err := StartLocked(ctx, r, repo, plan)
	if err == nil {
		warnOtherTarget(r, entry, inv)
	}
	return inv, err
}

// warnOtherTarget warns of a restored sandbox that lands elsewhere than the old one would have: its integration worktree was
// archived, or is broken.
func warnOtherTarget(r *core.Repository, from store.Entry[store.InvocationMeta], inv core.Invocation) {
	old := from.Record.IntegrationWorktreeID
	if !ids.Valid(old) || old == inv.WorktreeID {
		return
	}
	was := r.WorktreeFromEntry(r.Store.Worktree(r.ID, old, nil))
	before := core.ShortBranch(core.IntegrationBranch(from.Record, was.Entry.Record))
	if before == core.ShortBranch(inv.IntegrationBranch) {
		return
	}
	r.Warn("worktree %s of %s cannot be used any more; the new sandbox lands on %s of worktree %s, and not on %s",
		cmp.Or(was.Name, old), from.ID, core.ShortBranch(inv.IntegrationBranch), inv.Worktree, cmp.Or(before, "its branch"))
}

// fillRestored writes the archive of an ended sandbox into a new one, and checks out the submodules that are not in it.
//
// Commands of the old sandbox may have written the configuration of repositories in the archive. Then the new sandbox gets
// its upper directory first, and the repositories of submodules go there, so that git on the host never finds them, nor runs
// in repositories in the tree: it could do so while this runs, or after this was killed.
func fillRestored(ctx context.Context, repo *git.Repo, s *sandbox.Sandbox, plan Plan) error {
	ran, err := mayHaveRun(s.Repo, plan.restores)
	if err != nil {
		return err
	}
	entry, upperEntry := repo.AdminDir(s.ID), ""
	if s.Repo.IsClone(s.ID) {
		entry = s.Repo.CloneGitDir(s.ID)
	}
	if ran && plan.prims.Isolation == settings.IsolationOS {
		if err := s.EnsureGitUpperDir(ctx, plan.prims); err != nil {
			return err
		}
		upperEntry = overlay.OpaqueEntry(handoff.UpperDir(s.Repo, s.ID), s.ID)
		if upperEntry == "" {
			return fmt.Errorf("git's entry of the worktree in %s is missing or not opaque", handoff.UpperDir(s.Repo, s.ID))
		}
		entry = upperEntry
	}
	if err := s.Repo.UnpackTrash(ctx, plan.restores, s.ID, filepath.Join(entry, "modules")); err != nil {
		return err
	}
	if err := populateSubmodules(ctx, s.Repo, repo, s.ID, upperEntry); err != nil || upperEntry == "" {
		return err
	}
	return handoff.HideModules(s.Repo, s.ID)
}

// mayHaveRun reports whether commands may have run in an ended sandbox that has an archive; otherwise the archive has only the
// user's own files. Records of older versions do not say that; then the events do, except of a command that was killed
// together with this program.
func mayHaveRun(r *core.Repository, id string) (bool, error) {
	record := r.Store.Invocation(r.ID, id, nil).Record
	if !record.HasTrashArchive || record.HadWalledGit {
		return record.HasTrashArchive, nil
	}
	ran := false
	err := r.Store.ReadEvents(r.ID, id, func(line []byte) {
		ran = ran || bytes.Contains(line, []byte(`"event":"exec"`))
	})
	return ran, err
}

// planRestore plans the sandbox that has the content of an ended one.
func planRestore(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], software *sandbox.RestoredSoftware) (plan Plan, err error) {
	m := entry.Record
	remains, err := r.Store.FindRemains(r.ID, entry.ID)
	if err != nil {
		return plan, err
	}
	if m.Landing == store.Discarded && (remains.HasTree || remains.HasWithdrawn) {
		return plan, &fault.UnfinishedDiscardError{ID: entry.ID}
	}
	plan = Plan{Request: Request{Name: m.InvocationName, Runner: m.Runner, Mode: m.Mode, CloneSource: m.CloneSource}, prims: m.Primitives, limits: m.Limits, allowed: m.Allowed, restores: entry.ID}
	plan.prims = software.Prims
	if err := sandbox.CheckWalls(ctx, r, software.Checked); err != nil {
		return plan, err
	}
	if plan.origin, err = trashStartPoint(ctx, r, repo, entry); err != nil {
		return plan, err
	}
	return plan, planWorktree(r, &plan)
}

// trashStartPoint returns the start point for the trash ref of an invocation.
func trashStartPoint(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (StartPoint, error) {
	from := StartPoint{Base: entry.Record.BaseCommit, UntrustedConfig: !r.TrustsRepoConfig(entry.ID)}
	if id := entry.Record.IntegrationWorktreeID; ids.Valid(id) {
		wt := r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil))
		branch := core.IntegrationBranch(entry.Record, wt.Entry.Record)
		if wt.CheckUsable() != nil {
			var err error
			if wt, err = r.FindWorktreeOfBranch(branch); err != nil {
				return from, err
			}
		}
		if wt.ID != "" {
			from.worktreeID, from.branch = wt.ID, branch
		}
	}
	kept, err := r.TrashCommit(ctx, repo, entry.ID)
	if err != nil {
		return from, err
	}
	if kept == "" {
		return from, &fault.TrashGoneError{ID: entry.ID, Gone: core.TrashRef(entry.ID)}
	}
	if entry.Record.HasTrashArchive && !r.HasTrashArchive(entry.ID) {
		return from, &fault.TrashGoneError{ID: entry.ID, Gone: r.Store.TrashArchivePath(r.ID, entry.ID), Ref: core.TrashRef(entry.ID)}
	}
	from.Snapshot, from.Head = kept, kept
	// A capture names the invocation; its first parent is HEAD, or an earlier capture.
	for captures := 0; ; captures++ {
		c, err := core.ReadCapture(ctx, repo, from.Head)
		if err != nil {
			return from, err
		}
		if !c.IsCaptureOf(entry.ID) {
			return from, from.stageSubmodules(ctx, repo)
		}
		for _, parent := range c.Parents[1:] {
			staged, err := core.ReadCapture(ctx, repo, parent)
			if err != nil {
				return from, err
			}
			if captures == 0 && staged.IsStaged() {
				from.index = staged.Tree
			}
		}
		from.Head = c.Parents[0]
	}
}

// stageSubmodules sets the index of a start point that has none of its own and whose snapshot changes submodules. Commits of
// submodules are captured from the index, so the index was then the same as the files, and is not kept twice.
func (from *StartPoint) stageSubmodules(ctx context.Context, repo *git.Repo) error {
	if from.index != "" || from.Snapshot == from.Head {
		return nil
	}
	changes, err := repo.TreeChanges(ctx, git.RunOptions{}, from.Head, from.Snapshot)
	if err != nil || !slices.ContainsFunc(changes, func(c git.TreeChange) bool {
		return c.OldMode == object.ModeGitlinkText || c.NewMode == object.ModeGitlinkText
	}) {
		return err
	}
	captured, err := core.ReadCapture(ctx, repo, from.Snapshot)
	from.index = captured.Tree
	return err
}
