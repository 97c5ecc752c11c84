package landing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UnlandRequest says which landing to revert.
type UnlandRequest struct {
	ID     string // required: invocation id or unique prefix of it
	DryRun bool   // run the same checks with the same errors, but change nothing
}

// UnlandResult is the result of Unland.
type UnlandResult struct {
	Invocation string `json:"invocation_id"`
	Commit     string `json:"commit"`    // new commit of the integration branch
	Before     string `json:"before"`    // commit of the integration branch before
	Branch     string `json:"branch"`    // branch of the integration worktree
	Landed     string `json:"landed"`    // commit of the reverted landing
	TrashRef   string `json:"trash_ref"` // ref that keeps the sandbox's own commits until prune
	Already    bool   `json:"already"`   // it was reverted before
	DryRun     bool   `json:"dry_run"`   // nothing was changed
}

// Unland reverts a landing with a commit on top of the integration branch that undoes its changes and nothing later. It
// gives the guarantees of Land. Later changes to the same lines are a *ConflictsError.
func Unland(ctx context.Context, r *core.Repository, req UnlandRequest) (UnlandResult, error) {
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return UnlandResult{}, err
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return UnlandResult{}, err
	}
	defer unlock()
	unlanded, err := unlandLocked(ctx, r, repo, inv.ID, req.DryRun)
	for again := 1; again <= maxLandRetries && branchMoved(err); again++ {
		if err = waitBackoff(ctx, again, landBackoff); err == nil {
			unlanded, err = unlandLocked(ctx, r, repo, inv.ID, req.DryRun)
		}
	}
	if branchMoved(err) {
		err = &fault.KeepsMovingError{ID: inv.ID, Branch: inv.LandedBranch, Times: maxLandRetries + 1, Unlanding: true}
	}
	if err != nil && !fault.Is[*fault.CleanupError](err) {
		unlanded.Commit, unlanded.Before = "", "" // the other fields stay valid
		return unlanded, fmt.Errorf("unland %s: %w", inv.ID, err)
	}
	return unlanded, err
}

// unlandLocked is Unland for a caller that holds the repository lock.
func unlandLocked(ctx context.Context, r *core.Repository, repo *git.Repo, id string, dry bool) (u UnlandResult, err error) {
	if err := Recover(ctx, r, repo); err != nil {
		return u, err
	}
	entry := r.Store.Invocation(r.ID, id, nil)
	m := entry.Record
	switch {
	case entry.Defect != store.NoDefect:
		return u, core.InvocationFromEntry(entry, nil).Err()
	case m.Landing != store.Landed || m.LandedStrategy == "":
		from, err := restoredFromLanded(ctx, r, repo, m)
		return u, cmp.Or(err, error(&fault.NotLandedError{ID: id, Landing: m.Landing, RestoredFrom: from}))
	}
	u = UnlandResult{Invocation: id, Commit: m.UnlandedCommit, Landed: m.LandedCommit, Branch: m.LandedBranch, DryRun: dry}
	kept, err := r.TrashCommit(ctx, repo, id)
	if kept != "" {
		u.TrashRef = core.TrashRef(id)
	}
	if err != nil {
		return u, err
	}
	if m.UnlandedCommit != "" {
		back, err := isStillApplied(ctx, r, repo, m)
		if err != nil || !back {
			u.Already = true
			return u, err
		}
		u.Commit = ""
	}
	ctx, cancel, err := r.Settings.WithOperationTimeout(ctx, "unland")
	if err != nil {
		return u, err
	}
	defer cancel()
	to, err := r.FindIntegrationTarget(ctx, repo, core.Invocation{
		WorktreeID: m.IntegrationWorktreeID, IntegrationBranch: core.HeadsPrefix + m.LandedBranch, StartedAt: core.TimeOrZero(m.LandedAt),
	})
	var missing *fault.MissingBranchError
	if errors.As(err, &missing) {
		missing.Operation, missing.Arguments = "revert", landedRevisions(m)
	}
	if err != nil {
		return u, err
	}
	merger, err := merge.NewMerger(repo, to.Commit)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.TrustsRepoConfig(id)
	u.Before = to.Commit
	if u.Commit, err = makeRevertCommit(ctx, r, merger, m, to.Commit); err != nil {
		var conflicts *fault.ConflictsError
		if errors.As(err, &conflicts) {
			conflicts.Tree = to.CheckoutTree
		}
		return u, err
	}
	return publishUnland(ctx, r, merger, to, u)
}

// restoredFromLanded returns the invocation that a sandbox was restored from, if that has landed and was not reverted since:
// its user may have meant that landing.
func restoredFromLanded(ctx context.Context, r *core.Repository, repo *git.Repo, m store.InvocationMeta) (string, error) {
	if m.FromSnapshot == "" {
		return "", nil
	}
	all, err := r.Store.Invocations(r.ID, nil)
	if err != nil {
		return "", err
	}
	for _, e := range all {
		if e.Defect != store.NoDefect || e.Record.Landing != store.Landed || e.Record.LandedStrategy == "" || e.Record.UnlandedCommit != "" {
			continue
		}
		if kept, err := r.TrashCommit(ctx, repo, e.ID); err != nil || kept == m.FromSnapshot {
			return e.ID, err
		}
	}
	return "", nil
}

// isStillApplied reports whether any change of a landing is still on its branch: reverting it would change the tree. If
// the revert conflicts with later changes, the history decides: the landing counts as reverted if the unland commit is on
// the branch.
func isStillApplied(ctx context.Context, r *core.Repository, repo *git.Repo, m store.InvocationMeta) (left bool, err error) {
	at, err := repo.Tip(ctx, core.HeadsPrefix+m.LandedBranch)
	if err != nil || at == "" || at == m.LandedCommit {
		return at != "", err
	}
	found, err := repo.Lookup(ctx, m.LandedTip)
	if err != nil || m.LandedStrategy == "" && found[0].Missing() { // pruned: assume that it is still there
		return err == nil, err
	}
	merger, err := merge.NewMerger(repo, at)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.TrustsRepoConfig(m.InvocationID)
	if m.LandedStrategy == "" { // nothing had to be merged: the branch had all of it
		merged, err := merger.Merge(ctx, merge.Request{Ours: at, Theirs: m.LandedTip})
		if err != nil || len(merged.Conflicts) > 0 {
			return err == nil, err
		}
		return merger.SameTree(ctx, merged.Tree, at)
	}
	if there, err := merger.IsAncestor(ctx, m.LandedCommit, at); err != nil || !there {
		return false, err
	}
	merged, err := merger.Merge(ctx, merge.Request{Base: m.LandedCommit, Ours: at, Theirs: m.LandedBefore})
	if err != nil {
		return false, err
	}
	if len(merged.Conflicts) > 0 {
		if m.UnlandedCommit == "" {
			return true, nil
		}
		held, err := merger.IsAncestor(ctx, m.UnlandedCommit, at)
		return err == nil && !held, err
	}
	same, err := merger.SameTree(ctx, merged.Tree, at)
	return err == nil && !same, err
}

// landedRevisions returns the arguments that name a landing for git revert or git cherry-pick.
func landedRevisions(m store.InvocationMeta) string {
	if m.LandedStrategy == landStrategies()[0].name {
		return "-m 1 " + m.LandedCommit
	}
	return m.LandedBefore + ".." + m.LandedCommit
}

// makeRevertCommit creates the commit that undoes a landing.
func makeRevertCommit(ctx context.Context, r *core.Repository, merger *merge.Merger, m store.InvocationMeta, at string) (string, error) {
	there, err := merger.IsAncestor(ctx, m.LandedCommit, at)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("the commit of the landing, %s, is not on %s any more", m.LandedCommit, m.LandedBranch)
	}
	merged, err := merger.Merge(ctx, merge.Request{Base: m.LandedCommit, Ours: at, Theirs: m.LandedBefore})
	if err != nil {
		return "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", &fault.ConflictsError{ID: m.InvocationID, Conflicts: fault.ConvertConflicts(merged.Conflicts), Unlanding: true, RevertArgs: landedRevisions(m), Branch: m.LandedBranch}
	}
	same, err := merger.SameTree(ctx, merged.Tree, at)
	if err != nil {
		return "", err
	}
	if same {
		return "", &fault.NotLandedError{ID: m.InvocationID, Landing: m.Landing, Reverted: true}
	}
	if err := merger.FsckTree(ctx, merged.Tree, at); err != nil { // the merge of two valid trees may be invalid
		return "", err
	}
	author, committer, err := r.LandingSignatures(ctx)
	if err != nil {
		return "", err
	}
	sign, err := r.Settings.SignsLandings()
	if err != nil {
		return "", err
	}
	trailers, err := r.Settings.LandingTrailers()
	if err != nil {
		return "", err
	}
	return merger.CreateCommit(ctx, merge.CommitRequest{
		Tree: merged.Tree, Parents: []string{at}, Author: author, Committer: committer, Sign: sign,
		Message: withUnlandTrailers(fmt.Sprintf("Revert the landing of %s\n\nThis reverts %s..%s.", m.InvocationID, m.LandedBefore, m.LandedCommit), trailers, m),
	})
}

// publishUnland moves the integration branch to the revert commit, in the same transaction as a landing.
func publishUnland(ctx context.Context, r *core.Repository, merger *merge.Merger, to core.IntegrationTarget, u UnlandResult) (UnlandResult, error) {
	a := update.Update{
		Branch: to.Branch, Old: to.Commit, New: u.Commit, Reason: "agency: unland " + u.Invocation,
		GitDir: to.CheckoutGitDir, Worktree: to.CheckoutTree, Trusted: merger.Trusted,
	}
	done, err := runPublication(ctx, r, publication{
		merger: merger, branchUpdate: a, dryRun: u.DryRun, writeRecord: func() error { return recordUnlanding(r, u) },
		journal: store.LandingJournal{InvocationID: u.Invocation, Verb: verbUnland, Tip: u.Landed},
	})
	switch {
	case err == nil:
		return u, nil
	case !done:
		return UnlandResult{}, err
	}
	return u, &fault.CleanupError{Kind: "invocation", ID: u.Invocation, Done: "unlanded", Err: err}
}

// recordUnlanding writes the unland to the record and the event log of the invocation.
func recordUnlanding(r *core.Repository, u UnlandResult) error {
	now := r.Now()
	if err := r.Store.UpdateInvocationMeta(r.ID, u.Invocation, func(m *store.InvocationMeta) {
		m.UnlandedCommit, m.UnlandedAt = u.Commit, &now
	}); err != nil {
		return err
	}
	r.AppendEvent(u.Invocation, unlandEvent{r.EventTime(), verbUnland, u.Commit, u.Before, u.Branch, u.Landed})
	return nil
}

type unlandEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Commit string    `json:"commit"`
	Before string    `json:"before"`
	Branch string    `json:"branch"`
	Landed string    `json:"landed"`
}
