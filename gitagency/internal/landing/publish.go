package landing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// publishLanding moves the integration branch to the new commit, records the landing and removes the sandbox. With DryRun
// it only checks whether that is possible.
func (l *landAttempt) publishLanding(ctx context.Context) (landed Result, err error) {
	r := l.r
	landed = l.plannedResult()
	done := false
	if !l.req.DryRun {
		if err := l.removeStaleArchive(); err != nil {
			return Result{}, err
		}
		defer func() {
			if !done {
				err = errors.Join(err, l.removeStaleArchive())
			}
		}()
	}
	advance, err := l.planUpdate(ctx)
	if err != nil {
		return Result{}, err
	}
	if !l.req.DryRun {
		landed.TrashRef = core.TrashRef(l.s.ID)
		if l.r.HasTrashArchive(l.s.ID) {
			landed.TrashArchive = l.r.Store.TrashArchivePath(l.r.ID, l.s.ID)
		}
		if landed.CleanupLock, err = l.deferCleanup(ctx); err != nil {
			return Result{}, err
		}
		landed.CleanupDeferred = l.req.DeferCleanup
	}
	done, err = runPublication(ctx, r, publication{
		merger: l.merger, branchUpdate: advance, dryRun: l.req.DryRun,
		writeRecord: func() error {
			l.startMergerClose() // no more reads from here on
			return recordLanding(r, landed, l.scanStart)
		},
		followUp: l.cleanupSteps(context.WithoutCancel(ctx)),
		journal:  store.LandingJournal{InvocationID: l.s.ID, Verb: verbLand, Strategy: landed.Strategy, Tip: l.tip},
	})
	if done {
		landed.Outdated = l.outdatedSubmodules(context.WithoutCancel(ctx))
	}
	switch {
	case err == nil:
		return landed, nil
	case !done:
		if landed.CleanupLock != l.req.CleanupLock {
			_ = landed.CleanupLock.Close()
		}
		return Result{}, err
	}
	return landed, &fault.CleanupError{Kind: "invocation", ID: l.s.ID, Done: store.Landed, Err: err}
}

// removeStaleArchive removes an archive that a discard or a landing left that did not end the invocation. Its sandbox still
// has everything, and may have changed since.
func (l *landAttempt) removeStaleArchive() error {
	if !l.r.HasTrashArchive(l.s.ID) || l.r.Store.Invocation(l.r.ID, l.s.ID, nil).Record.HasTrashArchive {
		return nil
	}
	return l.r.Store.RemoveTrashArchive(l.r.ID, l.s.ID)
}

// deferCleanup returns the lock that says that the removal of the sandbox is under way, if it is deferred. While doctor or
// prune wait for the repository lock with this lock taken, the landing removes the sandbox itself.
func (l *landAttempt) deferCleanup(ctx context.Context) (*os.File, error) {
	if !l.req.DeferCleanup || l.req.CleanupLock != nil {
		return l.req.CleanupLock, nil
	}
	mark, err := discard.MarkCleanup(ctx, l.r, 0)
	if fault.Is[*fault.LockTimeoutError](err) {
		l.req.DeferCleanup = false
		return nil, nil
	}
	return mark, err
}

// plannedResult returns the result that the landing has if it succeeds.
func (l *landAttempt) plannedResult() Result {
	landed := Result{
		Invocation: l.s.ID, Commit: l.newTip, Before: l.target.Commit, Branch: core.ShortBranch(l.target.Branch), Strategy: l.req.Strategy, Tip: l.tip,
		Commits: l.commitCount, DryRun: l.req.DryRun, LeftOut: snapshots.ToLeftOut(l.scanResult.LeftOut),
		MessageUnused: l.req.CommitAll && len(l.scanResult.Uncommitted) == 0,
	}
	if l.newTip == "" {
		landed.Commit, landed.Strategy, landed.Commits, landed.Already = l.target.Commit, "", 0, true
	}
	return landed
}

// planUpdate returns the ref updates of the landing: the integration branch with its worktree and, in the same ref
// transaction, the trash ref and the deletion of the sandbox's branch. If the branch has all of the work already, it does
// not move.
func (l *landAttempt) planUpdate(ctx context.Context) (update.Update, error) {
	kept, err := l.trashCommit(ctx)
	if err != nil {
		return update.Update{}, err
	}
	zeroOID := strings.Repeat("0", len(l.target.Commit))
	was := l.oldTrash
	if was == "" {
		was = zeroOID
	}
	a := update.Update{
		Branch: l.target.Branch, Old: l.target.Commit, New: l.newTip, Reason: "agency: land " + l.s.ID,
		GitDir: l.target.CheckoutGitDir, Worktree: l.target.CheckoutTree, Trusted: l.merger.Trusted,
		StartFiles: l.entry.Record.StartChanges,
		OtherRefs:  []update.RefMove{{Ref: core.TrashRef(l.s.ID), Old: was, New: kept}},
	}
	pinned, err := core.PinnedRefs(ctx, l.repo, l.s.ID)
	if err != nil {
		return a, err
	}
	for _, ref := range slices.Sorted(maps.Keys(pinned)) {
		a.OtherRefs = append(a.OtherRefs, update.RefMove{Ref: ref, Old: pinned[ref], New: zeroOID})
	}
	if l.newTip == "" {
		a.New, a.GitDir, a.Worktree = a.Old, "", ""
	}
	if free, err := l.canDeleteBranch(); err != nil || !free || l.scanResult.BranchTip == "" {
		return a, err
	}
	a.OtherRefs = append(a.OtherRefs, update.RefMove{Ref: core.SandboxRef(l.s.ID), Old: l.scanResult.BranchTip, New: zeroOID})
	return a, nil
}

// trashCommit returns the commit for the trash ref: the tip, or a capture of the sandbox if it holds more than the tip
// leads to. A dry run always gets the tip.
func (l *landAttempt) trashCommit(ctx context.Context) (string, error) {
	subject, err := l.r.PrepareCapture(l.s.SnapshotSubject(l.handle.Base, "content of the sandbox when it landed"))
	if err != nil {
		return "", err
	}
	subject.KeptSubmodules = l.submodules
	known := map[string]bool{l.tip: true, l.handle.Base: true, l.target.Commit: true}
	for _, c := range l.commits {
		known[c.OID] = true
	}
	if subject.IsClone { // it has refs of the repository
		refs, err := l.repo.Refs(ctx)
		if err != nil {
			return "", err
		}
		for _, oid := range refs {
			known[oid] = true
		}
	}
	if len(l.scanResult.LeftOut)+len(l.lostModules) == 0 && l.repo.OnlyKnownCommits(subject, known) && (l.oldTrash == "" || known[l.oldTrash]) {
		return l.tip, nil
	}
	if l.req.DryRun && l.req.Leave {
		return l.tip, l.r.CheckTrash(ctx, l.repo, subject, core.TrashOptions{Archive: true})
	}
	if l.req.DryRun {
		return l.tip, nil
	}
	refused, err := l.s.ImportForDiscard(ctx, l.repo, l.handle.Prims, l.handle.InvocationLock)
	if err != nil {
		return "", err
	}
	if refused != nil {
		if err := l.r.ArchiveDirs(ctx, l.s.ID, l.r.GitDirsToArchive(l.s.ID)); err != nil {
			return "", fmt.Errorf("git state of the sandbox is refused (%w) and cannot be archived: %w", refused, err)
		}
		l.r.Warn("sandbox %s: some of its git state is refused, and kept in an archive: %v", l.s.ID, refused)
	}
	subject.Onto = l.oldTrash
	l.merger.UsesUnreferenced = true
	captured, err := l.captureSandbox(ctx, subject)
	if err != nil || l.tip == l.scanResult.Head {
		return captured.Commit, err
	}
	found, err := l.repo.Lookup(ctx, captured.Commit+"^{tree}")
	if err != nil {
		return "", err
	}
	// The uncommitted work is in the tip, and left-out files are in the tree of the capture: keep both.
	return l.merger.CreateCommit(ctx, merge.CommitRequest{
		Tree: found[0].OID, Parents: []string{l.tip, captured.Commit}, Author: core.ToolSignature(l.r.Opts.Now()), Committer: core.ToolSignature(l.r.Opts.Now()), Message: subject.Message,
	})
}

// captureSandbox captures the sandbox. With Leave, content that no commit can hold goes to an archive.
func (l *landAttempt) captureSandbox(ctx context.Context, subject git.WorktreeSpec) (snapshot.CaptureResult, error) {
	if !l.req.Leave {
		return snapshot.Capture(ctx, l.repo, subject)
	}
	o := core.TrashOptions{Archive: true}
	captured, err := l.r.CaptureForTrash(ctx, l.repo, subject, o)
	if err != nil {
		return captured.CaptureResult, err
	}
	defer captured.Close()
	return captured.CaptureResult, l.r.WriteTrashArchive(ctx, l.s.ID, captured, o, nil)
}

// canDeleteBranch reports whether the sandbox's branch can be deleted: no other worktree has it checked out.
func (l *landAttempt) canDeleteBranch() (bool, error) {
	entries, err := worktree.Entries(l.repo)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name != l.s.ID && e.Branch == core.SandboxRef(l.s.ID) {
			l.r.Warn("branch %s is checked out at %s; it stays", core.ShortBranch(e.Branch), e.Path)
			return false, nil
		}
	}
	return true, nil
}

// cleanupSteps returns the steps that remove the sandbox after the landing.
func (l *landAttempt) cleanupSteps(ctx context.Context) []core.Step {
	spec := sandbox.Spec(l.r, l.s.ID)
	return []core.Step{
		{Name: "aside", Do: func() error {
			l.releaseSandbox() // commands that lock the sandbox from now on are told that it has landed
			return discard.MoveTreeAside(spec.Tree)
		}},
		{Name: "registration", Do: func() error {
			if l.req.DeferCleanup {
				return core.WorktreeBackend(l.repo).BeginUnregister(spec)
			}
			return core.WorktreeBackend(l.repo).Unregister(spec)
		}},
		{Name: "leftovers", Do: func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{Name: "tree", Do: func() error {
			if l.req.DeferCleanup {
				return nil
			}
			return discard.RemoveRemains(ctx, l.r, l.repo, l.s.ID)
		}},
	}
}

// recordLanding writes the landing to the record and the event log of the invocation. A zero looked leaves the time of the
// last scan as it is.
func recordLanding(r *core.Repository, landed Result, looked time.Time) error {
	now := r.Now()
	if err := r.Store.UpdateInvocationMeta(r.ID, landed.Invocation, func(m *store.InvocationMeta) {
		m.Landing, m.FinishedAt, m.LandedAt = store.Landed, &now, &now
		m.HasTrashArchive, m.HadWalledGit = r.HasTrashArchive(landed.Invocation), store.IsDir(r.UpperDir(landed.Invocation))
		m.LandedCommit, m.LandedBefore, m.LandedBranch, m.LandedStrategy, m.LandedTip = landed.Commit, landed.Before, landed.Branch, landed.Strategy, landed.Tip
		if !looked.IsZero() {
			m.CheckedAt = &looked
		}
	}); err != nil {
		return err
	}
	r.AppendEvent(landed.Invocation, landEvent{r.EventTime(), verbLand, landed.Commit, landed.Before, landed.Branch, landed.Strategy, landed.Tip})
	return nil
}

type landEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Commit   string    `json:"commit"`
	Before   string    `json:"before"`
	Branch   string    `json:"branch"`
	Strategy string    `json:"strategy"`
	Tip      string    `json:"tip"`
}
