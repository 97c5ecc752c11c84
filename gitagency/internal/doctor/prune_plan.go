package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// prunePlan collects the plan of a Prune. It only reads.
type prunePlan struct {
	r    *core.Repository
	repo *git.Repo // holds the repository lock, unless the repository was never used
	pruneCutoff

	results []PruneResult
	errs    []error // items that could not be inspected; they are kept

	cleanupRunning  bool                        // another process is removing ended sandboxes now
	hasRecords      bool                        // there are records of the repository
	moved           error                       // the records are those of another path of the repository, or that is unknown
	refs            map[string]string           // commits of trash and snapshot refs, and of our branches, by ref
	snapshots       map[string][]PrunedSnapshot // by id
	registered      map[string]string           // tree paths of git's linked worktrees by entry name
	worktrees       []worktree.Worktree         // listed on first use
	rollbackSources map[string]string           // owner of a snapshot -> invocation whose interrupted rollback needs it
}

const reasonChangedAfterEnd = "its sandbox was changed after it ended"

// planAll plans for all records, refs and leftovers.
func (p *prunePlan) planAll(ctx context.Context) error {
	var err error
	p.hasRecords, p.moved = p.r.Store.HasRepo(p.r.ID), p.r.CheckNotMoved()
	if err := p.listRefs(ctx, core.AgencyHeads); err != nil {
		return err
	}
	if p.registered, err = worktree.RegisteredTrees(p.repo); err != nil {
		return err
	}
	invocations, err := p.r.Store.Invocations(p.r.ID, nil)
	if err != nil {
		return err
	}
	p.rollbackSources = map[string]string{}
	for _, e := range invocations {
		if note, err := p.r.Store.ReadRollbackJournal(p.r.ID, e.ID); err == nil && note != nil {
			id, _, _ := strings.Cut(strings.TrimPrefix(note.SnapshotRef, core.AllSnapshotsPrefix), "/")
			p.rollbackSources[id] = e.ID
		}
	}
	for _, e := range invocations {
		p.planInvocation(ctx, e)
	}
	worktrees, err := p.r.Store.Worktrees(p.r.ID, nil)
	if err != nil {
		return err
	}
	for _, e := range worktrees {
		p.planArchived(ctx, p.r.WorktreeFromEntry(e))
	}
	if err := p.planOrphanRefs(ctx); err != nil {
		return err
	}
	if err := p.planLeftovers(); err != nil {
		return err
	}
	if err := errors.Join(p.planLayers(), p.planImages()); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// planRefsOnly plans for a repository that was never used here. It may contain our refs: a mirror clone copies all refs.
func (p *prunePlan) planRefsOnly(ctx context.Context) error {
	if err := p.listRefs(ctx); err != nil {
		return err
	}
	return p.planOrphanRefs(ctx)
}

// listRefs lists the trash and snapshot refs, and the refs below more prefixes.
func (p *prunePlan) listRefs(ctx context.Context, more ...string) (err error) {
	if p.refs, err = p.repo.Refs(ctx, append(more, core.TrashRef(""), core.AllSnapshotsPrefix)...); err != nil {
		return err
	}
	p.snapshots = map[string][]PrunedSnapshot{}
	for ref, commit := range p.refs {
		if name, is := strings.CutPrefix(ref, core.AllSnapshotsPrefix); is {
			id, _, _ := strings.Cut(name, "/")
			p.snapshots[id] = append(p.snapshots[id], PrunedSnapshot{ref, commit})
		}
	}
	for id, snapshots := range p.snapshots {
		sort.Slice(snapshots, func(i, j int) bool {
			a, b := snapshots[i].Ref, snapshots[j].Ref
			return cmp.Or(cmp.Compare(core.SnapshotNumber(id, a), core.SnapshotNumber(id, b)), strings.Compare(a, b)) < 0
		})
	}
	return nil
}

// planInvocation decides about one invocation.
func (p *prunePlan) planInvocation(ctx context.Context, e store.Entry[store.InvocationMeta]) {
	t := PruneResult{Kind: "invocation", ID: e.ID, Name: e.Record.InvocationName, Action: PruneKeep, Path: p.r.Store.InvocationDir(p.r.ID, e.ID), entry: e}
	p.fillRefs(&t)
	switch {
	case e.Defect != store.NoDefect:
		t.setBroken(string(e.Defect), e.Detail)
	case discard.IsAbandonedVerification(p.r, e):
		t.Action, t.Reason, t.TrashRef, t.discardFirst = PruneClean, "it was created to verify "+e.Record.VerifiesInvocation+", and the verification is no longer running", core.TrashRef(e.ID), true
	case !e.Record.HasEnded():
		t.Reason = "it is neither landed nor discarded"
	default:
		p.planEnded(ctx, &t)
	}
	p.results = append(p.results, t)
}

// fillRefs sets the trash and snapshot refs and the archive of an item.
func (p *prunePlan) fillRefs(t *PruneResult) {
	archive := p.r.Store.TrashArchivePath(p.r.ID, t.ID)
	if fi, err := os.Lstat(archive); err == nil {
		t.TrashArchive, t.ArchiveSize = archive, fi.Size()
	}
	t.Snapshots = p.snapshots[t.ID]
	if t.keptCommit = p.refs[core.TrashRef(t.ID)]; t.keptCommit != "" {
		t.TrashRef = core.TrashRef(t.ID)
	}
}

func (t *PruneResult) setBroken(reason, detail string) {
	t.BrokenReason, t.Reason = reason, fmt.Sprintf("it is broken (%s): %s", reason, detail)
}

// planEnded decides about an invocation that was landed or discarded.
func (p *prunePlan) planEnded(ctx context.Context, t *PruneResult) {
	if p.cleanupRunning && store.IsDir(p.r.Store.SandboxDir(p.r.ID, t.ID)) {
		t.Reason = "its sandbox is just being removed"
		return
	}
	left, late, err := p.inspectSandbox(ctx, t.entry, t.keptCommit)
	t.hasRemains = left
	m := t.entry.Record
	when := "it was " + m.Landing
	if m.FinishedAt != nil {
		when += " at " + formatTime(*m.FinishedAt)
	}
	switch {
	case err != nil:
		p.keepBecause(t, err)
		return
	case late:
		t.Action, t.Reason, t.TrashRef = PruneClean, reasonChangedAfterEnd, core.TrashRef(t.ID)
		return
	case p.rollbackSources[t.ID] != "":
		t.Reason = "an interrupted rollback of " + p.rollbackSources[t.ID] + " needs a snapshot of it"
		return
	case p.isExpired(m.FinishedAt):
		t.Action, t.Reason, t.TrashCommit = PruneRemove, when, t.keptCommit
		return
	case left:
		t.Action = PruneClean
	}
	switch {
	case p.before.IsZero():
		t.Reason = "nothing expires"
	case m.FinishedAt == nil:
		t.Reason = "its record does not say when it was " + m.Landing
	default:
		t.Reason = when + ", which is not long enough ago"
	}
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// keepBecause keeps an item because of an error. An error that is no reason to keep it, but prevents the decision, also
// counts as a failure of the Prune.
func (p *prunePlan) keepBecause(t *PruneResult, err error) {
	t.Reason = err.Error()
	if !fault.Is[*fault.NestedRepositoryError](err) && !fault.Is[*fault.UnsafePathError](err) && !fault.Is[*git.SpecialFileError](err) && !fault.Is[*fault.UntrustedFilterError](err) && !errors.Is(err, fs.ErrPermission) {
		p.errs = append(p.errs, fmt.Errorf("%s %s is kept: %w", t.Kind, t.ID, err))
	}
}

// inspectSandbox checks the rest of an ended sandbox. left reports whether a discard would remove anything, late whether
// there is work that the trash ref does not keep yet; the error says why it has to stay.
func (p *prunePlan) inspectSandbox(ctx context.Context, e store.Entry[store.InvocationMeta], kept string) (left, late bool, err error) {
	spec := sandbox.Spec(p.r, e.ID)
	if err := core.CheckParentResolved(spec.Scratch); err != nil {
		return false, false, err
	}
	remains, err := p.r.Store.FindRemains(p.r.ID, e.ID)
	if err != nil {
		return false, false, err
	}
	beside, err := store.ListLeftovers(spec.Scratch)
	if err != nil {
		return false, false, err
	}
	branch, registered := p.refs[spec.Branch], core.WorktreeBackend(p.repo).IsRegistered(spec, p.registered)
	switch {
	case remains.ForeignPath != "":
		return true, false, &fault.UnsafePathError{Path: remains.ForeignPath, Why: "was not created by git-agency"}
	case !remains.Any() && len(beside) == 0 && branch == "" && !registered:
		return false, false, nil
	}
	if err := discard.CheckRemovable(spec.Tree); err != nil {
		return true, false, err
	}
	unheld := false
	if branch != "" {
		if unheld, err = p.hasUnkeptCommits(ctx, spec, branch, kept); err != nil {
			return true, false, err
		}
	}
	var trees []string
	if remains.HasTree || unheld || registered && !remains.HasWithdrawn {
		trees = append(trees, spec.Tree)
	}
	if remains.HasWithdrawn {
		trees = append(trees, store.WithdrawnPath(spec.Tree))
	}
	for _, tree := range trees {
		s := discard.TrashSubject(p.r, e)
		s.Dir, s.Onto = tree, kept
		captured, err := p.r.CaptureDryRun(ctx, p.repo, s)
		if err != nil {
			return true, false, err
		}
		late = late || captured.Commit != kept
	}
	return true, late, nil
}

// hasUnkeptCommits reports whether a branch that a discard would delete has commits that the trash ref does not keep. A
// branch that is checked out elsewhere is an error: then the item stays.
func (p *prunePlan) hasUnkeptCommits(ctx context.Context, spec changeset.Spec, branch, kept string) (bool, error) {
	if p.worktrees == nil {
		listing, err := worktree.List(ctx, p.repo)
		if err != nil {
			return false, err
		}
		p.worktrees = listing.Worktrees
	}
	if at := discard.CheckedOutElsewhere(p.worktrees, spec); at != "" {
		return false, &fault.UnsafePathError{Path: at, Why: "has the branch of the sandbox, " + core.ShortBranch(spec.Branch) + ", checked out"}
	}
	held, err := p.repo.IsAncestor(ctx, branch, kept)
	return !held, err
}

// planArchived keeps the record and the branch of an archived worktree, which are the user's, and removes the rest of its
// tree after an interrupted archiving.
func (p *prunePlan) planArchived(ctx context.Context, wt core.Worktree) {
	t := PruneResult{Kind: "worktree", ID: wt.ID, Name: wt.Name, Action: PruneKeep, Path: p.r.Store.WorktreeDir(p.r.ID, wt.ID), worktree: wt}
	p.fillRefs(&t)
	switch {
	case wt.Broken:
		t.setBroken(wt.BrokenReason, wt.Entry.Detail)
	case wt.State != store.Archived && t.keptCommit == "":
		return
	case wt.State != store.Archived:
		t.Reason = "worktree " + wt.Name + " is not archived"
	default:
		t.Reason = "worktree " + wt.Name + " is archived; its record and branch are kept"
		left, late, err := p.inspectArchivedTree(ctx, wt, t.keptCommit)
		switch {
		case err != nil:
			p.keepBecause(&t, err)
		case late:
			t.Action, t.TrashRef = PruneClean, core.TrashRef(t.ID)
		case left:
			t.Action = PruneClean
		}
	}
	p.results = append(p.results, t)
}

// inspectArchivedTree checks the rest of an archived worktree's tree. left reports whether there is anything to remove,
// late whether there is work that is not kept yet; the error says why it has to stay.
func (p *prunePlan) inspectArchivedTree(ctx context.Context, wt core.Worktree, kept string) (left, late bool, err error) {
	if wt.Adopted {
		return false, false, nil
	}
	if tree, there := store.FirstExisting(wt.TreePath); there {
		return true, false, &fault.UnsafePathError{Path: tree, Why: "exists although the worktree is archived"}
	}
	home, aside := p.r.Store.WorktreeDir(p.r.ID, wt.ID), store.WithdrawnPath(wt.TreePath)
	beside, err := store.ListLeftovers(home)
	if err != nil {
		return false, false, err
	}
	spec := changeset.Spec{ID: wt.ID, Tree: wt.TreePath, Scratch: home}
	if _, there := store.FirstExisting(aside, store.RemovablePath(wt.TreePath)); !there && len(beside) == 0 && !core.WorktreeBackend(p.repo).IsRegistered(spec, p.registered) {
		return false, false, nil
	}
	if err := discard.CheckRemovable(wt.TreePath); err != nil || !store.IsDir(aside) {
		return true, false, err
	}
	s := wt.CaptureSubject()
	s.Dir, s.Onto = aside, kept
	captured, err := p.r.CaptureDryRun(ctx, p.repo, s)
	return true, captured.Commit != kept && captured.Commit != captured.BranchTip, err
}
