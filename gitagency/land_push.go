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

// How often, and how long, is tried to push what others push to as well.
const (
	mostPushes  = 50
	pushKey     = "agency.pushTimeout"
	pushingTime = time.Minute
)

// PushPlan is an integration branch that is to be pushed.
type PushPlan struct {
	Worktree string // the id of the integration worktree
	Branch   string
	Remote   string // by its name
	As       string // what the branch is called there
	Address  string // by which git finds it from any worktree: its name, or a path

	ref    string // of the branch
	remote git.Remote
	wary   bool
}

// PlanPush finds out where the branches of integration worktrees go, and refuses what cannot be pushed. Nobody is asked
// about it but our own settings. An empty remote is the one called local, if there is one, else origin. It is asked for
// before anything lands: then nothing has, where it fails.
// So are the settings read that a push will go by; req is how Push will be told to verify what it merges.
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

// Pushed is what came of a push.
type Pushed struct {
	Commit string // where the integration branch is
	Tries  int
	Merged bool // what others had pushed was merged into it, also where it could not be pushed after all
	Had    bool // the remote had all of it before
}

// Push brings an integration branch to a remote, as it is now. What others have pushed there meanwhile is merged into it
// first, as a landing is; then it is tried again, as often as it takes, within bounds. Nothing is forced. ids are what has
// landed on it, which will be able to say so. What is merged is verified first, as req says; nothing else in it counts.
//
// The error is a *NotPushedError: what has landed stands, and so does what was merged.
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
		if errors.As(err, &conflicts) { // not one of the landing, which stands
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
		if theirs == "" { // somebody has taken it away
			continue
		}
		if err := p.merge(ctx, theirs); err != nil && !overtaken(err) { // else it is tried again, with what is there now
			return p.done, err
		}
	}
}

// push is one under way. The repository lock is held while something is merged, and never while anybody is spoken to.
type push struct {
	PushPlan
	r       *Repository
	req     LandRequest // how what is merged is verified
	ids     []string
	courier *git.Courier
	done    Pushed
	at      string // where the branch is at the remote, once it has all of ours
	tracks  string // the ref that remembers that; empty when there is none
	before  string // where that was before we sent anything
	tree    string // of the worktree that has the branch checked out, if that is known
	unknown bool   // whether it has arrived

	verifying time.Duration // for how long what had to be merged was
}

func (p *push) close() error {
	if p.courier == nil {
		return nil
	}
	return p.courier.Close()
}

// attempt pushes once. Where that was in vain it returns what the remote has, in which there may be something that we lack.
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
	if p.done.Tries > 1 { // it is not the first time that others were faster
		if err := pause(ctx, p.done.Tries, betweenPushes); err != nil {
			return false, "", err
		}
	}
	p.courier.Turn(ctx) // nobody who does as we do comes between what we look at now and what we send
	if theirs, err = p.fetch(ctx); err != nil {
		return false, "", fmt.Errorf("%s; %w", answer.Words, err)
	}
	has, lacks, err := p.compare(ctx, theirs)
	switch {
	case err != nil:
		return false, "", err
	case has: // of what was sent before without an answer, or by somebody else
		p.at, p.done.Had = theirs, true
		return true, theirs, nil
	case lacks:
		return false, theirs, nil
	}
	// It is not that others were faster, unless one of them is about to be. Who says no for another reason says no again.
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

// fetch is where the branch is at the remote, all of which is here from then on; empty when it is not there.
func (p *push) fetch(ctx context.Context) (theirs string, err error) {
	err = p.r.forward(ctx, verbPush, []step{{"fetch", func() (err error) {
		theirs, err = p.courier.Fetch(ctx, heads+p.As, p.done.Commit)
		return err
	}}})
	return theirs, err
}

// compare reports whether the remote has all that we have, and whether we lack something that it has.
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

// merge merges what the remote has into the integration branch: a transaction as a landing is, and verified as one is.
func (p *push) merge(ctx context.Context, theirs string) error {
	v := &verification{r: p.r, req: p.req}
	defer v.close()
	for {
		c, box, err := p.mergeVerified(ctx, v, theirs)
		if err == nil && box == "" {
			return nil
		}
		if err == nil && v.times > 0 {
			p.r.warn("%s has moved since it was verified with %s/%s; it is verified again", p.Branch, p.Remote, p.As)
		}
		if began := time.Now(); err == nil { // while nobody has to wait for us
			err = v.run(ctx, box, c)
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

// mergeVerified merges, or comes back with a sandbox that has what has to be verified before.
func (p *push) mergeVerified(ctx context.Context, v *verification, theirs string) (c candidate, box string, err error) {
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
	if err := r.finishLanding(ctx, repo); err != nil { // of one that could not be finished when the lock was taken
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
		return c, "", err // others land here too
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
		box, err := p.tryout(ctx, repo, merger, v, c)
		return c, box, err
	}
	if err := p.publish(ctx, merger, to, theirs, c.commit, false); err != nil {
		return c, "", err
	}
	p.done.Merged = true
	return c, "", nil
}

// tryout makes the sandbox in which what would be merged is verified: like that of the last that has landed.
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
	box, err := v.start(ctx, repo, c)
	if err != nil && context.Cause(ctx) == nil {
		return "", &VerifyError{ID: v.req.ID, Command: v.req.Verify, Err: err}
	}
	if err == nil {
		v.claim(ctx, box)
	}
	return box, err
}

// mergeCommit makes the commit that has both.
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

func (p *push) publish(ctx context.Context, merger *git.Merger, to target, theirs, commit string, dry bool) error {
	a := git.Advance{
		Branch: to.branch, Old: to.at, New: commit, Reason: fmt.Sprintf("agency: merge %s/%s", p.Remote, p.As),
		GitDir: to.gitDir, Tree: to.tree, Trusted: merger.Trusted,
	}
	_, err := p.r.carryOut(ctx, publication{merger: merger, advance: a, dry: dry, note: store.Landing{InvocationID: cmp.Or(cmp.Or(p.ids...), p.Worktree), Verb: verbPush, Tip: theirs}})
	return err
}

// arrived writes down what the remote has now, as git does after a push.
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

// span is how long one waits between two tries at least and at most, more or less.
type span struct{ shortest, longest time.Duration }

var (
	betweenPushes   = span{20 * time.Millisecond, time.Second}
	betweenLandings = span{2 * time.Millisecond, 200 * time.Millisecond} // with the repository lock, for which others wait
)

// pause waits a little, so that those who all want the same do not want it at the same time: longer, the more often.
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
