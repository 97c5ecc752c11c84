package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Limits of the attempts to push to a branch that others push to as well.
const (
	mostPushes  = 50
	pushKey     = "agency.pushTimeout"
	pushingTime = time.Minute
)

// PushPlan says which integration branch to push where.
type PushPlan struct {
	Worktree string // id of the integration worktree
	Branch   string
	Remote   string // name of the remote
	As       string // name of the branch on the remote
	Address  string // remote as git finds it from any worktree: its name or a path

	ref    string // full ref of Branch
	remote git.Remote
	wary   bool
}

// PlanPush determines where the branches of integration worktrees would be pushed, and refuses branches that cannot be. It
// reads only local configuration and never contacts the remote. An empty remote means "local" if it exists, else
// "origin". Call it before anything lands, so that its errors leave everything unchanged.
//
// It also checks the settings that Push will use; req says how Push verifies its merges.
func (r *Repository) PlanPush(ctx context.Context, remote string, req LandRequest, worktrees ...string) ([]PushPlan, error) {
	if err := r.checkPush(req); err != nil {
		return nil, err
	}
	remotes, err := r.git.Remotes(ctx)
	if err != nil {
		return nil, err
	}
	names := remotes.Names()
	for _, name := range []string{"local", "origin"} {
		if remote == "" && slices.Contains(names, name) {
			remote = name
		}
	}
	if !slices.Contains(names, remote) {
		return nil, &NoRemoteError{Remote: remote, Remotes: names}
	}
	if err := remotes.Whole(); err != nil {
		return nil, fmt.Errorf("push to %s: %w; nothing changed", remote, err)
	}
	to, err := remotes.Remote(ctx, remote)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing changed", err)
	}
	wary := to.Own && !r.allHadWalls()
	if wary && to.Path != "" {
		hooks, err := r.git.Hooks(ctx, to)
		if err != nil {
			return nil, fmt.Errorf("push to %s: %w", remote, err)
		}
		if len(hooks) > 0 {
			return nil, &DistrustedRemoteError{Remote: remote, URL: to.URL, Hooks: hooks}
		}
	}
	plans := []PushPlan{}
	for _, id := range worktrees {
		if slices.ContainsFunc(plans, func(p PushPlan) bool { return p.Worktree == id }) {
			continue
		}
		target, err := r.integrationTarget(ctx, r.git, id)
		if err != nil {
			return nil, err
		}
		as := target.branch
		if upstream, pushed := remotes.Upstream(target.branch, remote); upstream != "" && upstream != as {
			if !pushed {
				return nil, &UpstreamError{Branch: short(as), Remote: remote, Upstream: short(upstream)}
			}
			as = upstream
		}
		plans = append(plans, PushPlan{
			Worktree: target.worktree.ID, Branch: short(target.branch), Remote: remote, As: short(as), Address: remote,
			ref: target.branch, remote: to, wary: wary,
		})
		if to.Relative {
			plans[len(plans)-1].Address = to.Path
		}
	}
	return plans, nil
}

// PushResult is the result of Push.
type Pushed struct {
	Commit string // commit of the integration branch
	Tries  int
	Merged bool // commits of others were merged into the branch, even if the push failed later
	Had    bool // the remote had all of the commits before
}

// Push pushes the current state of an integration branch to a remote. If others have pushed there, it merges their commits
// into the branch in a transaction, as a landing does, and tries again, up to maxPushes times and agency.pushTimeout. It
// never forces. ids are the invocations that landed on the branch; their event logs record the push. req only says how
// merges are verified.
//
// Errors are *NotPushedError: landings and merges that were made before stay.
func (r *Repository) Push(ctx context.Context, plan PushPlan, req LandRequest, ids ...string) (pushed Pushed, err error) {
	p := push{r: r, PushPlan: plan, ids: ids}
	defer func() {
		if closeErr := p.close(); closeErr != nil {
			r.warn("clean-up: %v", closeErr)
		}
		if err == nil {
			return
		}
		failed := &NotPushedError{PushPlan: plan, IDs: ids, Tries: p.done.Tries, Tree: p.tree, Err: err, Unknown: p.unknown}
		var conflicts *ConflictsError
		if errors.As(err, &conflicts) { // the landing itself had no conflicts, and stays
			failed.Conflicts, failed.Err = conflicts.Conflicts, nil
		}
		err = failed
	}()
	if err := req.check(r); err != nil {
		return Pushed{}, err
	}
	p.req = req
	patience, err := r.pushTimeout()
	if err != nil {
		return Pushed{}, err
	}
	for began := time.Now(); ; {
		arrived, theirs, err := p.attempt(ctx)
		if err != nil {
			return p.done, err
		}
		if arrived {
			p.arrived(context.WithoutCancel(ctx))
			return p.done, nil
		}
		if p.done.Tries >= mostPushes || patience >= 0 && time.Since(began)-p.verifying >= patience {
			return p.done, &OutpacedError{Tries: p.done.Tries}
		}
		if theirs == "" { // the remote branch was deleted meanwhile
			continue
		}
		if err := p.merge(ctx, theirs); err != nil && !overtaken(err) { // otherwise try again with the current branch
			return p.done, err
		}
	}
}

// pushOperation is a push in progress. It holds the repository lock while it merges, and never while it talks to the
// remote.
type push struct {
	PushPlan
	r       *Repository
	req     LandRequest // says how merges are verified
	ids     []string
	courier *git.Courier
	done    Pushed
	at      string // commit of the remote branch, once that has all of our commits
	tracks  string // remote-tracking ref; empty if there is none
	before  string // commit of trackingRef before the push
	tree    string // worktree that has the branch checked out, if known
	unknown bool   // the push failed without an answer, so it may have arrived

	verifying time.Duration // time spent on verifying merges; does not count against agency.pushTimeout
}

func (p *push) close() error {
	if p.courier == nil {
		return nil
	}
	return p.courier.Close()
}

// pushOnce pushes once. If the remote refuses, it fetches and returns the remote's commit, which may have commits that we
// lack.
func (p *push) attempt(ctx context.Context) (arrived bool, theirs string, err error) {
	ctx, cancel, err := p.r.bounded(ctx, "pushing")
	if err != nil {
		return false, "", err
	}
	defer cancel()
	if p.done.Commit, err = p.r.git.Tip(ctx, p.ref); err == nil && p.done.Commit == "" {
		err = &NoCommitError{Name: p.Branch}
	}
	if err != nil {
		return false, "", err
	}
	p.at = p.done.Commit
	if p.courier == nil {
		if p.courier, err = p.r.git.Courier(p.remote, p.done.Commit, p.wary); err != nil {
			return false, "", err
		}
	}
	if p.tracks = p.remote.Tracks(heads + p.As); p.tracks != "" {
		if p.before, err = p.r.git.Tip(ctx, p.tracks); err != nil {
			return false, "", err
		}
	}
	p.done.Tries++
	var answer git.Answer
	if err := p.r.forward(ctx, verbPush, []step{{"send", func() (err error) {
		answer, err = p.courier.Push(ctx, p.done.Commit, heads+p.As)
		p.done.Had = answer.Had
		p.unknown = err != nil && !git.Refused(err)
		return err
	}}}); err != nil || answer.Arrived {
		return err == nil, "", err
	}
	if p.done.Tries > 1 { // not the first time that others were faster
		if err := pause(ctx, p.done.Tries, betweenPushes); err != nil {
			return false, "", err
		}
	}
	p.courier.Turn(ctx) // wait for other git-agency pushes, so that none runs between our fetch and our push
	if theirs, err = p.fetch(ctx); err != nil {
		return false, "", fmt.Errorf("%s; %w", answer.Words, err)
	}
	has, lacks, err := p.compare(ctx, theirs)
	switch {
	case err != nil:
		return false, "", err
	case has: // by an earlier push without an answer, or by another process
		p.at, p.done.Had = theirs, true
		return true, theirs, nil
	case lacks:
		return false, theirs, nil
	}
	// The remote has nothing new, so others were not faster, unless one of them is about to be. A remote that refuses for
	// another reason refuses again: report that if its branch stays the same.
	if err := pause(ctx, p.done.Tries, betweenPushes); err != nil {
		return false, "", err
	}
	before := theirs
	if theirs, err = p.fetch(ctx); err != nil {
		return false, "", err
	}
	if theirs == before {
		return false, "", &RejectedError{Words: answer.Words}
	}
	return false, theirs, nil
}

// fetchRemoteTip fetches the remote branch with all its objects and returns its commit; empty if it does not exist.
func (p *push) fetch(ctx context.Context) (theirs string, err error) {
	err = p.r.forward(ctx, verbPush, []step{{"fetch", func() (err error) {
		theirs, err = p.courier.Fetch(ctx, heads+p.As, p.done.Commit)
		return err
	}}})
	return theirs, err
}

// compareWithRemote reports whether the remote has all of our commits, and whether we lack some of its commits.
func (p *push) compare(ctx context.Context, theirs string) (has, lacks bool, err error) {
	if theirs == "" {
		return false, false, nil
	}
	if has, err = p.r.git.IsAncestor(ctx, p.done.Commit, theirs); err != nil || has {
		return has, false, err
	}
	known, err := p.r.git.IsAncestor(ctx, theirs, p.done.Commit)
	return false, !known, err
}

// mergeRemote merges the remote's commits into the integration branch, in a transaction and verified as a landing is.
func (p *push) merge(ctx context.Context, theirs string) error {
	v := &verification{r: p.r, req: p.req}
	defer v.close()
	for {
		c, sandboxID, err := p.mergeVerified(ctx, v, theirs)
		if err == nil && sandboxID == "" {
			return nil
		}
		if err == nil && v.times > 0 {
			p.r.warn("%s has moved since it was verified with %s/%s; it is verified again", p.Branch, p.Remote, p.As)
		}
		if began := time.Now(); err == nil { // without the repository lock
			err = v.run(ctx, sandboxID, c)
			p.verifying += time.Since(began)
		}
		var failed *VerifyError
		if errors.As(err, &failed) {
			failed.Merge = p.Remote + "/" + p.As
		}
		if err != nil {
			return err
		}
		v.times, v.req.verified = v.times+1, c.tree
	}
}

// tryMerge merges the remote's commit, or returns a temporary sandbox with the merge result that has to be verified first.
func (p *push) mergeVerified(ctx context.Context, v *verification, theirs string) (c candidate, sandboxID string, err error) {
	r := p.r
	ctx, cancel, err := r.bounded(ctx, "merging")
	if err != nil {
		return c, "", err
	}
	defer cancel()
	repo, unlock, err := r.lock(ctx)
	if err != nil {
		return c, "", err
	}
	defer unlock()
	if err := r.finishLanding(ctx, repo); err != nil { // an interrupted landing whose recovery failed when the lock was taken
		return c, "", err
	}
	to, err := r.integrationTarget(ctx, repo, p.Worktree)
	if err != nil {
		return c, "", err
	}
	if p.tree = to.tree; to.branch != p.ref {
		return c, "", fmt.Errorf("worktree %q is on %s now", to.worktree.Name, short(to.branch))
	}
	if has, err := repo.IsAncestor(ctx, theirs, to.at); err != nil || has {
		return c, "", err // another process has merged it already
	}
	merger, err := repo.Merger(to.at)
	if err != nil {
		return c, "", err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.allHadWalls()
	if c.commit, c.tree, err = p.mergeCommit(ctx, merger, to.at, theirs); err != nil {
		return c, "", err
	}
	if c.trusted = merger.Trusted; p.req.Verify != "" && c.tree != v.req.verified {
		if err := p.publish(ctx, merger, to, theirs, c.commit, true); err != nil {
			return c, "", err
		}
		sandboxID, err := p.tryout(ctx, repo, merger, v, c)
		return c, sandboxID, err
	}
	if err := p.publish(ctx, merger, to, theirs, c.commit, false); err != nil {
		return c, "", err
	}
	p.done.Merged = true
	return c, "", nil
}

// startVerifySandbox creates the temporary sandbox in which the merge is verified, with the walls and limits of the last
// invocation that landed.
func (p *push) tryout(ctx context.Context, repo *git.Repo, merger *git.Merger, v *verification, c candidate) (string, error) {
	if v.times == mostVerifications {
		return "", fmt.Errorf("%s moved each of the %d times that it was verified with what others have pushed", p.Branch, v.times)
	}
	if v.req.ID = ""; len(p.ids) > 0 {
		v.req.ID = p.ids[len(p.ids)-1]
	}
	all, err := p.r.Invocations(ListRequest{All: true, Worktree: p.Worktree})
	for _, inv := range all {
		if len(p.ids) == 0 && inv.Landing == store.Landed && !inv.Broken {
			v.req.ID = inv.ID
		}
	}
	if err == nil && v.req.ID == "" {
		err = fmt.Errorf("what others have pushed cannot be verified, as nothing that has landed on %s is on record; --no-verify merges it as it is", p.Branch)
	}
	if err == nil {
		err = p.r.forward(ctx, verbVerify, []step{{"objects", func() error { return merger.Keep(ctx) }}})
	}
	if err != nil {
		return "", err
	}
	sandboxID, err := v.start(ctx, repo, c)
	if err != nil && context.Cause(ctx) == nil {
		return "", &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	if err == nil {
		v.claim(ctx, sandboxID)
	}
	return sandboxID, err
}

// makeMergeCommit creates the merge of the integration branch and the remote's commit.
func (p *push) mergeCommit(ctx context.Context, merger *git.Merger, at, theirs string) (commit, tree string, err error) {
	merged, err := merger.Merge(ctx, git.Merging{Ours: at, Theirs: theirs})
	if err != nil {
		return "", "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", "", &ConflictsError{Conflicts: conflicts(merged.Conflicts)}
	}
	author, committer, err := p.r.landingIdentity(ctx)
	if err != nil {
		return "", "", err
	}
	sign, err := p.r.signsLandings()
	if err != nil {
		return "", "", err
	}
	commit, err = merger.Commit(ctx, git.NewCommit{
		Tree: merged.Tree, Parents: []string{at, theirs}, Author: author, Committer: committer, Sign: sign,
		Message: fmt.Sprintf("Merge %s/%s", p.Remote, p.As),
	})
	if err != nil {
		return "", "", err
	}
	return commit, merged.Tree, merger.Sound(ctx, commit, at)
}

// publishMerge moves the integration branch to the merge commit, in the same transaction as a landing.
func (p *push) publish(ctx context.Context, merger *git.Merger, to target, theirs, commit string, dry bool) error {
	a := git.Advance{
		Branch: to.branch, Old: to.at, New: commit, Reason: fmt.Sprintf("agency: merge %s/%s", p.Remote, p.As),
		GitDir: to.gitDir, Tree: to.tree, Trusted: merger.Trusted,
	}
	_, err := p.r.carryOut(ctx, publication{merger: merger, advance: a, dry: dry, note: store.Landing{InvocationID: cmp.Or(cmp.Or(p.ids...), p.Worktree), Verb: verbPush, Tip: theirs}})
	return err
}

// recordPush updates the remote-tracking ref, as git does after a push, and the event logs of the invocations.
func (p *push) arrived(ctx context.Context) {
	r := p.r
	if p.tracks != "" {
		if err := r.git.Track(ctx, p.tracks, p.at, p.before, "update by push"); err != nil {
			r.warn("%s: %v", p.tracks, err)
		}
	}
	for _, id := range p.ids {
		r.record(id, pushEvent{r.now(), verbPush, p.done.Commit, p.Branch, p.Remote, p.As, p.done.Tries})
	}
}

type pushEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Commit string    `json:"commit"`
	Branch string    `json:"branch"`
	Remote string    `json:"remote"`
	As     string    `json:"as"`
	Tries  int       `json:"tries"`
}

// backoff holds the approximate bounds of the wait between two attempts.
type span struct{ shortest, longest time.Duration }

var (
	betweenPushes   = span{20 * time.Millisecond, time.Second}
	betweenLandings = span{2 * time.Millisecond, 200 * time.Millisecond} // shorter, because the repository lock is held
)

// waitBackoff waits for a random time that grows with the number of tries, so that competing processes spread out.
func pause(ctx context.Context, tries int, s span) error {
	wait := time.NewTimer(s.shortest/2 + rand.N(min(s.shortest<<min(tries, 10), s.longest)))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wait.C:
		return nil
	}
}
