package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// setTreePath returns a function that writes the tree path of a worktree to its record.
func (x *checkRun) setTreePath(id, tree string) func() error {
	return func() error {
		return x.Store.UpdateWorktreeMeta(x.ID, id, func(m *store.WorktreeMeta) { m.TreePath, m.RepoID = tree, x.ID })
	}
}

// relinkWorktree connects a tree with its worktree entry again. It refuses a tree that is linked to another entry.
func (x *checkRun) relinkWorktree(ctx context.Context, s treeInfo) error {
	if _, elsewhere, err := x.LinkedEntry(s.tree, s.id); err != nil {
		return err
	} else if elsewhere != "" {
		return &fault.UnsafePathError{Path: s.tree, Why: "belongs to " + elsewhere}
	}
	if s.base != "" && x.refs[s.branch] == "" {
		if err := x.restoreBranch(ctx, s); err != nil {
			return err
		}
	}
	spec := s.changesetSpec()
	if s.marker == guard.Sandbox {
		spec.OverlayDir, spec.CloneDir = store.OverlayOf(s.tree), store.CloneOf(s.tree)
	}
	if err := handoff.RepointAlternates(x.Repository, s.id); err != nil {
		x.Warn("sandbox %s: git in it does not find the objects of the repository: %v", s.id, err)
	}
	isFormer := func(path string) bool { return slices.Contains(x.formerIDs, store.RepoID(path)) }
	if err := handoff.RepointOrigin(x.Repository, s.id, isFormer); err != nil {
		x.Warn("sandbox %s: its remote origin still names the former path of the repository: %v", s.id, err)
	}
	entry, err := x.OverlayBackend(x.repo).Registration(spec)
	if err != nil {
		return err
	}
	return repair.RelinkWorktree(ctx, x.repo, entry)
}

// lastKnownCommit returns the newest commit in the HEAD reflog of a worktree, else its base commit.
func (x *checkRun) lastKnownCommit(ctx context.Context, s treeInfo) (string, error) {
	commit, err := repair.LastLoggedCommit(ctx, x.repo, s.id)
	if err != nil {
		return "", err
	}
	commit = cmp.Or(commit, s.base)
	found, err := x.repo.Lookup(ctx, commit+"^{commit}")
	if err == nil && found[0].Missing() {
		err = &fault.NoCommitError{Name: commit}
	}
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// restoreBranch recreates a branch at the last known commit of its worktree.
func (x *checkRun) restoreBranch(ctx context.Context, s treeInfo) error {
	commit, err := x.lastKnownCommit(ctx, s)
	if err != nil {
		return err
	}
	if err := x.repo.RemoveRefLeftovers(ctx, s.branch); err != nil {
		return err
	}
	return repair.RestoreRef(ctx, x.repo, s.branch, commit, "agency: doctor")
}

// fixByArchiving returns a fix that archives a worktree; the trash keeps work that is on no branch.
func (x *checkRun) fixByArchiving(w core.Worktree) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := x.RemoveWorktreeLocked(ctx, x.repo, w, true)
		return err
	}
}

// fixByDiscarding returns a fix that discards an invocation and keeps its content in the trash.
func (x *checkRun) fixByDiscarding(e store.Entry[store.InvocationMeta]) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := discard.End(ctx, x.Repository, x.repo, e, core.TrashOptions{Archive: true})
		return err
	}
}

// salvageOutcome describes the effect of salvageSandbox.
func salvageOutcome(id string) string {
	return "the sandbox is removed; all of its files but ignored ones are kept as " + core.TrashRef(id) + ", and in an archive where no commit can hold them"
}

// salvageSandbox ends an invocation whose record is lost: a trash ref keeps the content of the sandbox and the rest of the
// record, then both are removed. It can be repeated after an interruption.
func (x *checkRun) salvageSandbox(ctx context.Context, s treeInfo, why string) error {
	if err := core.CheckParentResolved(s.tree); err != nil {
		return err
	}
	if err := x.CheckTreeNotMoved(x.repo, s.id, s.tree); err != nil {
		return err
	}
	lost := git.WorktreeSpec{
		Name: s.id, Dir: s.tree, Branch: s.branch, Base: s.base,
		Message: fmt.Sprintf("agency: content of sandbox %s, whose record was lost\n\n%s\n%s", s.id, why, store.ReadRawMeta(s.recordDir)),
	}
	o := core.TrashOptions{Archive: true, Late: true}
	if err := sandbox.CheckBeforeStop(ctx, x.Repository, x.repo, lost, o); err != nil {
		return err
	}
	vacant, err := sandbox.LockExclusive(ctx, x.Repository, s.id)
	if err != nil {
		return err
	}
	defer vacant.Close()
	if vacant.EndedCommands > 0 {
		x.Warn("commands in sandbox %s that were ended: %d", s.id, vacant.EndedCommands)
	}
	discard.RecoverUploads(ctx, x.Repository, s.id)
	if o.Dirs, err = x.importLost(ctx, s, vacant); err != nil {
		return err
	}
	if lost.Onto, err = x.TrashCommit(ctx, x.repo, s.id); err != nil {
		return err
	}
	captured, err := x.CaptureForTrash(ctx, x.repo, lost, o)
	if err != nil {
		return err
	}
	defer captured.Close()
	tx := x.BeginTx("doctor")
	if err := tx.Step(ctx, "archive", func() error { return x.WriteTrashArchive(ctx, s.id, captured, o, nil) }); err != nil {
		return err
	}
	if err := tx.Step(ctx, "trash", func() error {
		if captured.Commit == "" && x.HasTrashArchive(s.id) {
			return x.KeepOrphanArchive(ctx, x.repo, s.id)
		}
		return x.KeepCommit(ctx, tx, x.repo, core.TrashRef(s.id), captured.Commit)
	}); err != nil {
		return err
	}
	tx.Commit()
	spec := s.changesetSpec()
	return x.RunSteps(ctx, "doctor", append(x.StepsToRemoveTree(ctx, x.repo, lost, zeroTime, o, nil),
		core.Step{Name: "registration", Do: func() error { return core.WorktreeBackend(x.repo).Unregister(spec) }},
		core.Step{Name: "branch", Do: func() error { return discard.DeleteKeptBranch(ctx, x.Repository, x.repo, spec, o) }},
		core.Step{Name: "sandbox-dir", Do: func() error { return x.Store.RemoveSandboxTree(x.ID, s.id) }},
		core.Step{Name: "record", Do: func() error { return durable.RemoveTree(s.recordDir) }},
	))
}

// importLost imports git state, behind the walls or in a clone, of a sandbox whose record is lost. If some of it is refused, or the tree
// has no marker, it returns the directories that hold that state.
func (x *checkRun) importLost(ctx context.Context, s treeInfo, held sandbox.ExclusiveLock) (dirs []core.ArchivedDir, err error) {
	walled := store.Primitives{Isolation: settings.IsolationOS} // without walls, a worktree has nothing to import, and a clone has no git directory behind them
	refused, err := sandbox.Of(x.Repository, s.id).ImportForDiscard(ctx, x.repo, walled, held.InvocationLock)
	if fault.Is[*fault.NotSandboxError](err) {
		refused, err = err, nil
	}
	if err != nil || refused == nil {
		return nil, err
	}
	x.Warn("sandbox %s: some of its git state is refused: %v", s.id, refused)
	return x.GitDirsToArchive(s.id), nil
}

// rebuildWorktreeRecord recreates the record of an integration worktree from its tree and git's worktree entry. The tree of
// an adopted worktree is elsewhere; if it cannot be found, the damaged record is removed.
func (x *checkRun) rebuildWorktreeRecord(w core.Worktree) error {
	tree := x.Store.WorktreeTreePath(x.ID, w.ID)
	entry := x.entries[w.ID]
	if aside := store.WithdrawnPath(tree); !store.IsDir(tree) && store.IsDir(aside) { // an interrupted removal; the tree may hold work
		if err := os.Rename(aside, tree); err != nil {
			return err
		}
	}
	if !store.IsDir(tree) {
		adopted := x.inventory().Unrecorded()
		if len(adopted) != 1 {
			return store.RemoveRecord(x.Store.WorktreeDir(x.ID, w.ID))
		}
		tree, entry.Branch = adopted[0].Path, adopted[0].Branch
	}
	branch := core.ShortBranch(entry.Branch)
	name := strings.TrimSuffix(strings.TrimPrefix(branch, core.BranchNamespace+"/"), "-"+ids.Suffix(w.ID))
	taken := slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.ID != w.ID && e.Record.State == store.Present && e.Record.Name == name
	})
	if name = core.DeriveWorktreeName(name, tree); taken || core.CheckWorktreeName(name) != nil {
		name = "recovered-" + ids.Suffix(w.ID)
	}
	at, _ := ids.Time(w.ID)
	return x.Store.WriteWorktreeMeta(store.WorktreeMeta{
		SchemaVersion: store.SchemaVersion, WorktreeID: w.ID, Name: name, RepoID: x.ID,
		Branch: branch, TreePath: tree, CreatedAt: at, State: store.Present,
	})
}
