package sandbox

import (
	"bytes"
	"cmp"
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
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
	if !core.HasEnded(ended.Entry.Record) {
		return core.Invocation{}, &fault.NotEndedError{ID: ended.ID}
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return core.Invocation{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, ended.ID, nil) // may have been pruned while waiting for the lock
	if entry.Defect != store.NoDefect || !core.HasEnded(entry.Record) {
		return core.Invocation{}, &fault.NotFoundError{Kind: "invocation", Query: query}
	}
	plan, err := planRestore(ctx, r, repo, entry)
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

// hideRepositories moves the repositories of submodules of a restored sandbox behind its walls, and keeps git on the host from
// looking into submodules: commands of the old sandbox may have written their configuration. A sandbox in which no command
// ran has only what the user put there. Records of older versions do not say that; then the events do, except of a command
// that was killed together with this program. It is a step of the creation, so that no git on the host finds the sandbox
// before.
func hideRepositories(ctx context.Context, r *core.Repository, from string, s *Sandbox, prims store.Primitives) error {
	record := r.Store.Invocation(r.ID, from, nil).Record
	if !record.HasTrashArchive {
		return nil
	}
	ran := record.HadWalledGit
	if err := r.Store.ReadEvents(r.ID, from, func(line []byte) {
		ran = ran || bytes.Contains(line, []byte(`"event":"exec"`))
	}); err != nil {
		return err
	}
	if !ran {
		return nil
	}
	return s.ensureGitUpperDir(ctx, prims)
}

// planRestore plans the sandbox that has the content of an ended one.
func planRestore(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (plan StartPlan, err error) {
	m := entry.Record
	remains, err := r.Store.FindRemains(r.ID, entry.ID)
	if err != nil {
		return plan, err
	}
	if m.Landing == store.Discarded && (remains.HasTree || remains.HasWithdrawn) {
		return plan, &fault.UnfinishedDiscardError{ID: entry.ID}
	}
	plan = StartPlan{StartRequest: StartRequest{Name: m.InvocationName, Runner: m.Runner, Mode: m.Mode}, prims: m.Primitives, limits: m.Limits, allowed: m.Allowed, restores: entry.ID}
	if err := checkWalls(ctx, r, plan.prims); err != nil {
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
		if wt := r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)); wt.CheckUsable() == nil {
			from.worktreeID, from.branch = id, core.IntegrationBranch(entry.Record, wt.Entry.Record)
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
			return from, nil
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
