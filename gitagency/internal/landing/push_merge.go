package landing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// mergeRemote merges the remote's commits into the integration branch, in a transaction and verified as a landing is.
func (p *pushOperation) mergeRemote(ctx context.Context, theirs string) error {
	v := &verification{r: p.r, req: p.verify}
	defer v.close()
	for {
		c, sandboxID, err := p.tryMerge(ctx, v, theirs)
		if err == nil && sandboxID == "" {
			return nil
		}
		if err == nil && v.runs > 0 {
			p.r.Warn("%s moved while its merge with %s/%s was verified; verifying again", p.Branch, p.Remote, p.RemoteBranch)
		}
		if began := time.Now(); err == nil { // without the repository lock
			err = v.runCommand(ctx, sandboxID, c)
			p.verifyTime += time.Since(began)
		}
		var failed *VerifyError
		if errors.As(err, &failed) {
			failed.Merge = p.Remote + "/" + p.RemoteBranch
		}
		if err != nil {
			return err
		}
		v.runs, v.verifiedTree = v.runs+1, c.tree
	}
}

// tryMerge merges the remote's commit, or returns a temporary sandbox with the merge result that has to be verified first.
func (p *pushOperation) tryMerge(ctx context.Context, v *verification, theirs string) (c candidate, sandboxID string, err error) {
	r := p.r
	ctx, cancel, err := r.Settings.WithOperationTimeout(ctx, "merging")
	if err != nil {
		return c, "", err
	}
	defer cancel()
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return c, "", err
	}
	defer unlock()
	if err := Recover(ctx, r, repo); err != nil { // an interrupted landing whose recovery failed when the lock was taken
		return c, "", err
	}
	to, err := r.FindIntegrationTarget(ctx, repo, core.Invocation{WorktreeID: p.Worktree, IntegrationBranch: p.branchRef})
	if err != nil {
		return c, "", err
	}
	p.tree = to.CheckoutTree
	if has, err := repo.IsAncestor(ctx, theirs, to.Commit); err != nil || has {
		return c, "", err // another process has merged it already
	}
	merger, err := merge.NewMerger(repo, to.Commit)
	if err != nil {
		return c, "", err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.AllSandboxesWalled()
	if c.commit, c.tree, err = p.makeMergeCommit(ctx, merger, to.Commit, theirs); err != nil {
		return c, "", err
	}
	if c.trustedConfig = merger.Trusted; p.verify.Verify != "" && c.tree != v.verifiedTree {
		if err := p.publishMerge(ctx, merger, to, theirs, c.commit, true); err != nil {
			return c, "", err
		}
		sandboxID, err := p.startVerifySandbox(ctx, repo, merger, v, c)
		return c, sandboxID, err
	}
	if err := p.publishMerge(ctx, merger, to, theirs, c.commit, false); err != nil {
		return c, "", err
	}
	p.result.Merged = true
	return c, "", nil
}

// startVerifySandbox creates the temporary sandbox in which the merge is verified, with the walls and limits of the last
// invocation that landed.
func (p *pushOperation) startVerifySandbox(ctx context.Context, repo *git.Repo, merger *merge.Merger, v *verification, c candidate) (string, error) {
	if v.runs == maxVerifications {
		return "", fmt.Errorf("%s moved during each of %d verifications of its merge with commits that others pushed", p.Branch, v.runs)
	}
	if v.req.ID = ""; len(p.ids) > 0 {
		v.req.ID = p.ids[len(p.ids)-1]
	}
	all, err := p.r.Invocations(core.ListRequest{All: true, Worktree: p.Worktree})
	for _, inv := range all {
		if len(p.ids) == 0 && inv.Landing == store.Landed && inv.LandedBranch == p.Branch && !inv.Broken {
			v.req.ID = inv.ID
		}
	}
	if err == nil && v.req.ID == "" {
		err = fmt.Errorf("commits that others pushed cannot be verified, as there is no record of a landing on %s; --no-verify merges them unverified", p.Branch)
	}
	if err == nil {
		err = p.r.RunSteps(ctx, creation.VerifyVerb, []core.Step{{Name: "objects", Do: func() error { return merger.Persist(ctx) }}})
	}
	if err != nil {
		return "", err
	}
	sandboxID, err := v.startSandbox(ctx, repo, c)
	if err != nil && context.Cause(ctx) == nil {
		return "", &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	if err == nil {
		v.markAlive(ctx, sandboxID)
	}
	return sandboxID, err
}

// makeMergeCommit creates the merge of the integration branch and the remote's commit.
func (p *pushOperation) makeMergeCommit(ctx context.Context, merger *merge.Merger, at, theirs string) (commit, tree string, err error) {
	merged, err := merger.Merge(ctx, merge.Request{Ours: at, Theirs: theirs})
	if err != nil {
		return "", "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", "", &fault.ConflictsError{Conflicts: fault.ConvertConflicts(merged.Conflicts)}
	}
	author, committer, err := p.r.LandingSignatures(ctx)
	if err != nil {
		return "", "", err
	}
	sign, err := p.r.Settings.SignsLandings()
	if err != nil {
		return "", "", err
	}
	commit, err = merger.CreateCommit(ctx, merge.CommitRequest{
		Tree: merged.Tree, Parents: []string{at, theirs}, Author: author, Committer: committer, Sign: sign,
		Message: fmt.Sprintf("Merge %s/%s", p.Remote, p.RemoteBranch),
	})
	if err != nil {
		return "", "", err
	}
	return commit, merged.Tree, merger.FsckTree(ctx, commit, at)
}

// publishMerge moves the integration branch to the merge commit, in the same transaction as a landing.
func (p *pushOperation) publishMerge(ctx context.Context, merger *merge.Merger, to core.IntegrationTarget, theirs, commit string, dry bool) error {
	a := update.Update{
		Branch: to.Branch, Old: to.Commit, New: commit, Reason: fmt.Sprintf("agency: merge %s/%s", p.Remote, p.RemoteBranch),
		GitDir: to.CheckoutGitDir, Worktree: to.CheckoutTree, Trusted: merger.Trusted,
	}
	_, err := runPublication(ctx, p.r, publication{merger: merger, branchUpdate: a, dryRun: dry, journal: store.LandingJournal{InvocationID: cmp.Or(cmp.Or(p.ids...), p.Worktree), Verb: verbPush, Tip: theirs}})
	return err
}
