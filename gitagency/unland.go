package gitagency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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
func (r *Repository) Unland(ctx context.Context, req UnlandRequest) (UnlandResult, error) {
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return UnlandResult{}, err
	}
	repo, unlock, err := r.lockAndRecover(ctx)
	if err != nil {
		return UnlandResult{}, err
	}
	defer unlock()
	unlanded, err := r.unlandLocked(ctx, repo, inv.ID, req.DryRun)
	for again := 1; again <= maxLandRetries && branchMoved(err); again++ {
		if err = waitBackoff(ctx, again, landBackoff); err == nil {
			unlanded, err = r.unlandLocked(ctx, repo, inv.ID, req.DryRun)
		}
	}
	if branchMoved(err) {
		err = &KeepsMovingError{ID: inv.ID, Branch: inv.LandedBranch, Times: maxLandRetries + 1, Unlanding: true}
	}
	if err != nil && !is[*CleanupError](err) {
		unlanded.Commit, unlanded.Before = "", "" // the other fields stay valid
		return unlanded, fmt.Errorf("unland %s: %w", inv.ID, err)
	}
	return unlanded, err
}

// unlandLocked is Unland for a caller that holds the repository lock.
func (r *Repository) unlandLocked(ctx context.Context, repo *git.Repo, id string, dry bool) (u UnlandResult, err error) {
	if err := r.recoverLanding(ctx, repo); err != nil {
		return u, err
	}
	entry := r.store.Invocation(r.ID, id, nil)
	m := entry.Record
	switch {
	case entry.Defect != store.NoDefect:
		return u, invocationFromEntry(entry, nil).Err()
	case m.Landing != store.Landed || m.LandedStrategy == "":
		return u, &NotLandedError{ID: id, Landing: m.Landing}
	}
	u = UnlandResult{Invocation: id, Commit: m.UnlandedCommit, Landed: m.LandedCommit, Branch: m.LandedBranch, DryRun: dry}
	kept, err := r.trashCommit(ctx, repo, id)
	if kept != "" {
		u.TrashRef = trashRef(id)
	}
	if err != nil {
		return u, err
	}
	if m.UnlandedCommit != "" {
		back, err := r.isStillApplied(ctx, repo, m)
		if err != nil || !back {
			u.Already = true
			return u, err
		}
		u.Commit = ""
	}
	ctx, cancel, err := r.withOperationTimeout(ctx, "unland")
	if err != nil {
		return u, err
	}
	defer cancel()
	to, err := r.findIntegrationTarget(ctx, repo, m.IntegrationWorktreeID)
	if err != nil {
		return u, err
	}
	if shortBranch(to.branch) != m.LandedBranch {
		return u, fmt.Errorf("it has landed on %s, but worktree %q is on %s now", m.LandedBranch, to.worktree.Name, shortBranch(to.branch))
	}
	merger, err := merge.NewMerger(repo, to.commit)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.trustsRepoConfig(id)
	u.Before = to.commit
	if u.Commit, err = r.makeRevertCommit(ctx, merger, m, to.commit); err != nil {
		var conflicts *ConflictsError
		if errors.As(err, &conflicts) {
			conflicts.Tree = to.checkoutTree
		}
		return u, err
	}
	return r.publishUnland(ctx, merger, to, u)
}

// isStillApplied reports whether any change of a landing is still on its branch: reverting it would change the tree. If
// the revert conflicts with later changes, the history decides: the landing counts as reverted if the unland commit is on
// the branch.
func (r *Repository) isStillApplied(ctx context.Context, repo *git.Repo, m store.InvocationMeta) (left bool, err error) {
	at, err := repo.Tip(ctx, headsPrefix+m.LandedBranch)
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
	merger.Trusted = r.trustsRepoConfig(m.InvocationID)
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
func (r *Repository) makeRevertCommit(ctx context.Context, merger *merge.Merger, m store.InvocationMeta, at string) (string, error) {
	there, err := merger.IsAncestor(ctx, m.LandedCommit, at)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("%s, by which it landed, is not on %s any more", m.LandedCommit, m.LandedBranch)
	}
	merged, err := merger.Merge(ctx, merge.Request{Base: m.LandedCommit, Ours: at, Theirs: m.LandedBefore})
	if err != nil {
		return "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", &ConflictsError{ID: m.InvocationID, Conflicts: convertConflicts(merged.Conflicts), Unlanding: true, RevertArgs: landedRevisions(m), Branch: m.LandedBranch}
	}
	same, err := merger.SameTree(ctx, merged.Tree, at)
	if err != nil {
		return "", err
	}
	if same {
		return "", &NotLandedError{ID: m.InvocationID, Landing: m.Landing, Reverted: true}
	}
	if err := merger.FsckTree(ctx, merged.Tree, at); err != nil { // the merge of two valid trees may be invalid
		return "", err
	}
	author, committer, err := r.landingSignatures(ctx)
	if err != nil {
		return "", err
	}
	sign, err := r.signsLandings()
	if err != nil {
		return "", err
	}
	return merger.CreateCommit(ctx, merge.CommitRequest{
		Tree: merged.Tree, Parents: []string{at}, Author: author, Committer: committer, Sign: sign,
		Message: object.WithTrailers(fmt.Sprintf("Take back the landing of %s\n\nThis undoes %s..%s.", m.InvocationID, m.LandedBefore, m.LandedCommit),
			[][2]string{{invocationTrailer, m.InvocationID}, {baseTrailer, m.BaseCommit}, {undoesTrailer, m.LandedCommit}}),
	})
}

// publishUnland moves the integration branch to the revert commit, in the same transaction as a landing.
func (r *Repository) publishUnland(ctx context.Context, merger *merge.Merger, to integrationTarget, u UnlandResult) (UnlandResult, error) {
	a := update.Update{
		Branch: to.branch, Old: to.commit, New: u.Commit, Reason: "agency: unland " + u.Invocation,
		GitDir: to.checkoutGitDir, Worktree: to.checkoutTree, Trusted: merger.Trusted,
	}
	done, err := r.runPublication(ctx, publication{
		merger: merger, branchUpdate: a, dryRun: u.DryRun, writeRecord: func() error { return r.recordUnlanding(u) },
		journal: store.LandingJournal{InvocationID: u.Invocation, Verb: verbUnland, Tip: u.Landed},
	})
	switch {
	case err == nil:
		return u, nil
	case !done:
		return UnlandResult{}, err
	}
	return u, &CleanupError{Kind: "invocation", ID: u.Invocation, Done: "taken back", Err: err}
}

// recordUnlanding writes the unland to the record and the event log of the invocation.
func (r *Repository) recordUnlanding(u UnlandResult) error {
	now := r.now()
	if err := r.store.UpdateInvocationMeta(r.ID, u.Invocation, func(m *store.InvocationMeta) {
		m.UnlandedCommit, m.UnlandedAt = u.Commit, &now
	}); err != nil {
		return err
	}
	r.appendEvent(u.Invocation, unlandEvent{now, verbUnland, u.Commit, u.Before, u.Branch, u.Landed})
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
