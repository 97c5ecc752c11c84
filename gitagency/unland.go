package gitagency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UnlandRequest says which landing to take back.
type UnlandRequest struct {
	ID     string // required: the invocation, by its id or a unique prefix
	DryRun bool   // the same checks and errors, and nothing changes
}

// Unlanded is what came of taking a landing back.
type Unlanded struct {
	Invocation string `json:"invocation_id"`
	Commit     string `json:"commit"`    // the integration branch is there now
	Before     string `json:"before"`    // where it was
	Branch     string `json:"branch"`    // of the integration worktree
	Landed     string `json:"landed"`    // the landing that was taken back
	TrashRef   string `json:"trash_ref"` // what keeps the sandbox's own commits until they are pruned
	Already    bool   `json:"already"`   // it had been taken back before
	DryRun     bool   `json:"dry_run"`   // nothing was changed
}

// Unland takes a landing back by another: a commit on top of the integration branch that undoes what it changed, and
// nothing that came later. It has the guarantees of Land; what came later and touches the same lines is a
// *ConflictsError.
func (r *Repository) Unland(ctx context.Context, req UnlandRequest) (Unlanded, error) {
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return Unlanded{}, err
	}
	repo, unlock, err := r.lock(ctx)
	if err != nil {
		return Unlanded{}, err
	}
	defer unlock()
	unlanded, err := r.unland(ctx, repo, inv.ID, req.DryRun)
	for again := 1; again <= mostOvertaken && overtaken(err); again++ {
		if err = pause(ctx, again, betweenLandings); err == nil {
			unlanded, err = r.unland(ctx, repo, inv.ID, req.DryRun)
		}
	}
	if overtaken(err) {
		err = &MovingError{ID: inv.ID, Branch: inv.LandedBranch, Times: mostOvertaken + 1, Back: true}
	}
	if err != nil && !is[*CleanupError](err) {
		unlanded.Commit, unlanded.Before = "", "" // the rest is known all the same
		return unlanded, fmt.Errorf("unland %s: %w", inv.ID, err)
	}
	return unlanded, err
}

// unland is Unland for who holds the repository lock.
func (r *Repository) unland(ctx context.Context, repo *git.Repo, id string, dry bool) (u Unlanded, err error) {
	if err := r.finishLanding(ctx, repo); err != nil {
		return u, err
	}
	entry := r.store.Invocation(r.ID, id, nil)
	m := entry.Record
	switch {
	case entry.Broken != store.Whole:
		return u, invocation(entry, nil).Err()
	case m.Landing != store.Landed || m.LandedStrategy == "":
		return u, &NotLandedError{ID: id, Landing: m.Landing}
	}
	u = Unlanded{Invocation: id, Commit: m.UnlandedCommit, Landed: m.LandedCommit, Branch: m.LandedBranch, DryRun: dry}
	kept, err := r.kept(ctx, repo, id)
	if kept != "" {
		u.TrashRef = trashRef(id)
	}
	if err != nil {
		return u, err
	}
	if m.UnlandedCommit != "" {
		back, err := r.anythingLeft(ctx, repo, m)
		if err != nil || !back {
			u.Already = true
			return u, err
		}
		u.Commit = ""
	}
	ctx, cancel, err := r.bounded(ctx, "unland")
	if err != nil {
		return u, err
	}
	defer cancel()
	to, err := r.integrationTarget(ctx, repo, m.IntegrationWorktreeID)
	if err != nil {
		return u, err
	}
	if short(to.branch) != m.LandedBranch {
		return u, fmt.Errorf("it has landed on %s, but worktree %q is on %s now", m.LandedBranch, to.worktree.Name, short(to.branch))
	}
	merger, err := repo.Merger(to.at)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.trustsSettings(id)
	u.Before = to.at
	if u.Commit, err = r.revert(ctx, merger, m, to.at); err != nil {
		var conflicts *ConflictsError
		if errors.As(err, &conflicts) {
			conflicts.Tree = to.tree
		}
		return u, err
	}
	return r.publishUnland(ctx, merger, to, u)
}

// anythingLeft reports whether anything of what has landed is on the branch: not, where undoing it would change nothing. Where
// that conflicts with what came later, history has to say.
func (r *Repository) anythingLeft(ctx context.Context, repo *git.Repo, m store.InvocationMeta) (left bool, err error) {
	at, err := repo.Tip(ctx, heads+m.LandedBranch)
	if err != nil || at == "" || at == m.LandedCommit {
		return at != "", err
	}
	found, err := repo.Lookup(ctx, m.LandedTip)
	if err != nil || m.LandedStrategy == "" && found[0].Missing() { // it was pruned, and nobody can tell
		return err == nil, err
	}
	merger, err := repo.Merger(at)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.trustsSettings(m.InvocationID)
	if m.LandedStrategy == "" { // nothing of it had to land: all of it was there
		merged, err := merger.Merge(ctx, git.Merging{Ours: at, Theirs: m.LandedTip})
		if err != nil || len(merged.Conflicts) > 0 {
			return err == nil, err
		}
		return merger.SameTree(ctx, merged.Tree, at)
	}
	if there, err := merger.IsAncestor(ctx, m.LandedCommit, at); err != nil || !there {
		return false, err
	}
	merged, err := merger.Merge(ctx, git.Merging{Base: m.LandedCommit, Ours: at, Theirs: m.LandedBefore})
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

// landedRange names what has landed for a git that reverts or picks it.
func landedRange(m store.InvocationMeta) string {
	if m.LandedStrategy == strategies()[0].name {
		return "-m 1 " + m.LandedCommit
	}
	return m.LandedBefore + ".." + m.LandedCommit
}

// revert makes the commit that undoes a landing.
func (r *Repository) revert(ctx context.Context, merger *git.Merger, m store.InvocationMeta, at string) (string, error) {
	there, err := merger.IsAncestor(ctx, m.LandedCommit, at)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("%s, by which it landed, is not on %s any more", m.LandedCommit, m.LandedBranch)
	}
	merged, err := merger.Merge(ctx, git.Merging{Base: m.LandedCommit, Ours: at, Theirs: m.LandedBefore})
	if err != nil {
		return "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", &ConflictsError{ID: m.InvocationID, Conflicts: conflicts(merged.Conflicts), Back: true, Revert: landedRange(m), Branch: m.LandedBranch}
	}
	same, err := merger.SameTree(ctx, merged.Tree, at)
	if err != nil {
		return "", err
	}
	if same {
		return "", &NotLandedError{ID: m.InvocationID, Landing: m.Landing, Reverted: true}
	}
	if err := merger.Sound(ctx, merged.Tree, at); err != nil { // that of a merge of two sound trees need not be
		return "", err
	}
	author, committer, err := r.landingIdentity(ctx)
	if err != nil {
		return "", err
	}
	sign, err := r.signsLandings()
	if err != nil {
		return "", err
	}
	return merger.Commit(ctx, git.NewCommit{
		Tree: merged.Tree, Parents: []string{at}, Author: author, Committer: committer, Sign: sign,
		Message: git.WithTrailers(fmt.Sprintf("Take back the landing of %s\n\nThis undoes %s..%s.", m.InvocationID, m.LandedBefore, m.LandedCommit),
			[][2]string{{invocationTrailer, m.InvocationID}, {baseTrailer, m.BaseCommit}, {undoesTrailer, m.LandedCommit}}),
	})
}

// publishUnland publishes it as a landing is.
func (r *Repository) publishUnland(ctx context.Context, merger *git.Merger, to target, u Unlanded) (Unlanded, error) {
	a := git.Advance{
		Branch: to.branch, Old: to.at, New: u.Commit, Reason: "agency: unland " + u.Invocation,
		GitDir: to.gitDir, Tree: to.tree, Trusted: merger.Trusted,
	}
	done, err := r.carryOut(ctx, publication{
		merger: merger, advance: a, dry: u.DryRun, record: func() error { return r.recordUnlanding(u) },
		note: store.Landing{InvocationID: u.Invocation, Verb: verbUnland, Tip: u.Landed},
	})
	switch {
	case err == nil:
		return u, nil
	case !done:
		return Unlanded{}, err
	}
	return u, &CleanupError{Kind: "invocation", ID: u.Invocation, Done: "taken back", Err: err}
}

// recordUnlanding writes down that a landing was taken back.
func (r *Repository) recordUnlanding(u Unlanded) error {
	now := r.now()
	if err := r.store.UpdateInvocationMeta(r.ID, u.Invocation, func(m *store.InvocationMeta) {
		m.UnlandedCommit, m.UnlandedAt = u.Commit, &now
	}); err != nil {
		return err
	}
	r.record(u.Invocation, unlandEvent{now, verbUnland, u.Commit, u.Before, u.Branch, u.Landed})
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
