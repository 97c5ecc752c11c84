package landing

import (
	"context"
	"errors"
	"fmt"
	rand "math/rand/v2"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
)

const maxPushes = 50

// PushResult is the result of Push.
type PushResult struct {
	Commit   string // commit of the integration branch
	Tries    int
	Merged   bool // commits of others were merged into the branch, even if the push failed later
	UpToDate bool // the remote had all of the commits before
}

// Push pushes the current state of an integration branch to a remote. If others have pushed there, it merges their commits
// into the branch in a transaction, as a landing does, and tries again, up to maxPushes times and agency.pushTimeout. It
// never forces. ids are the invocations that landed on the branch; their event logs record the push.
//
// Errors are *NotPushedError: landings and merges that were made before stay.
func Push(ctx context.Context, r *core.Repository, plan PushPlan, ids ...string) (pushed PushResult, err error) {
	p := pushOperation{r: r, PushPlan: plan, ids: ids}
	defer func() {
		if closeErr := p.close(); closeErr != nil {
			r.Warn("clean-up: %v", closeErr)
		}
		if err == nil {
			return
		}
		failed := &NotPushedError{PushPlan: plan, IDs: ids, Tries: p.result.Tries, Tree: p.tree, Err: err, OutcomeUnknown: p.outcomeUnknown}
		var conflicts *fault.ConflictsError
		if errors.As(err, &conflicts) { // the landing itself had no conflicts, and stays
			failed.Conflicts, failed.Err = conflicts.Conflicts, nil
		}
		err = failed
	}()
	patience, err := r.Settings.PushTimeout()
	if err != nil {
		return PushResult{}, err
	}
	for began := time.Now(); ; {
		arrived, theirs, err := p.pushOnce(ctx)
		if err != nil {
			return p.result, err
		}
		if arrived {
			p.recordPush(context.WithoutCancel(ctx))
			return p.result, nil
		}
		if p.result.Tries >= maxPushes || patience >= 0 && time.Since(began)-p.verifyTime >= patience {
			return p.result, &fault.PushRaceError{Tries: p.result.Tries}
		}
		if theirs == "" { // the remote branch was deleted meanwhile
			continue
		}
		if err := p.mergeRemote(ctx, theirs); err != nil && !branchMoved(err) { // otherwise try again with the current branch
			return p.result, err
		}
	}
}

// pushOperation is a push in progress. It holds the repository lock while it merges, and never while it talks to the
// remote.
type pushOperation struct {
	PushPlan
	r              *core.Repository
	ids            []string
	pusher         *transport.Pusher
	result         PushResult
	remoteTip      string // commit of the remote branch, once that has all of our commits
	trackingRef    string // remote-tracking ref; empty if there is none
	trackingTip    string // commit of trackingRef before the push
	tree           string // worktree that has the branch checked out, if known
	outcomeUnknown bool   // the push failed without an answer, so it may have arrived

	verifyTime time.Duration // time spent on verifying merges; does not count against agency.pushTimeout
}

func (p *pushOperation) close() error {
	if p.pusher == nil {
		return nil
	}
	return p.pusher.Close()
}

// pushOnce pushes once. If the remote refuses, it fetches and returns the remote's commit, which may have commits that we
// lack.
func (p *pushOperation) pushOnce(ctx context.Context) (arrived bool, theirs string, err error) {
	ctx, cancel, err := p.r.Settings.WithOperationTimeout(ctx, "pushing")
	if err != nil {
		return false, "", err
	}
	defer cancel()
	if p.result.Commit, err = p.r.Git.Tip(ctx, p.branchRef); err == nil && p.result.Commit == "" {
		err = &fault.NoCommitError{Name: p.Branch}
	}
	if err != nil {
		return false, "", err
	}
	p.remoteTip = p.result.Commit
	if p.pusher == nil {
		if p.pusher, err = transport.NewPusher(p.r.Git, p.remote, p.result.Commit, p.untrustedRemote); err != nil {
			return false, "", err
		}
	}
	if p.trackingRef = p.remote.TrackingRef(core.HeadsPrefix + p.RemoteBranch); p.trackingRef != "" {
		if p.trackingTip, err = p.r.Git.Tip(ctx, p.trackingRef); err != nil {
			return false, "", err
		}
	}
	p.result.Tries++
	var answer transport.PushResult
	if err := p.r.RunSteps(ctx, verbPush, []core.Step{{Name: "send", Do: func() (err error) {
		answer, err = p.pusher.Push(ctx, p.result.Commit, core.HeadsPrefix+p.RemoteBranch)
		p.result.UpToDate = answer.UpToDate
		p.outcomeUnknown = err != nil && !git.ChangedNothing(err)
		return err
	}}}); err != nil || answer.Accepted {
		return err == nil, "", err
	}
	if p.result.Tries > 1 { // another push was accepted before ours, again
		if err := waitBackoff(ctx, p.result.Tries, pushBackoff); err != nil {
			return false, "", err
		}
	}
	p.pusher.WaitTurn(ctx) // wait for other git-agency pushes, so that none runs between our fetch and our push
	if theirs, err = p.fetchRemoteTip(ctx); err != nil {
		return false, "", fmt.Errorf("%s; %w", answer.Reason, err)
	}
	has, lacks, err := p.compareWithRemote(ctx, theirs)
	switch {
	case err != nil:
		return false, "", err
	case has: // by an earlier push without an answer, or by another process
		p.remoteTip, p.result.UpToDate = theirs, true
		return true, theirs, nil
	case lacks:
		return false, theirs, nil
	}
	// The remote has nothing new, so others were not faster, unless one of them is about to be. A remote that refuses for
	// another reason refuses again: report that if its branch stays the same.
	if err := waitBackoff(ctx, p.result.Tries, pushBackoff); err != nil {
		return false, "", err
	}
	before := theirs
	if theirs, err = p.fetchRemoteTip(ctx); err != nil {
		return false, "", err
	}
	if theirs == before {
		return false, "", &fault.RejectedError{Message: answer.Reason}
	}
	return false, theirs, nil
}

// fetchRemoteTip fetches the remote branch with all its objects and returns its commit; empty if it does not exist.
func (p *pushOperation) fetchRemoteTip(ctx context.Context) (theirs string, err error) {
	err = p.r.RunSteps(ctx, verbPush, []core.Step{{Name: "fetch", Do: func() (err error) {
		theirs, err = p.pusher.Fetch(ctx, core.HeadsPrefix+p.RemoteBranch, p.result.Commit)
		return err
	}}})
	return theirs, err
}

// compareWithRemote reports whether the remote has all of our commits, and whether we lack some of its commits.
func (p *pushOperation) compareWithRemote(ctx context.Context, theirs string) (has, lacks bool, err error) {
	if theirs == "" {
		return false, false, nil
	}
	if has, err = p.r.Git.IsAncestor(ctx, p.result.Commit, theirs); err != nil || has {
		return has, false, err
	}
	known, err := p.r.Git.IsAncestor(ctx, theirs, p.result.Commit)
	return false, !known, err
}

// recordPush updates the remote-tracking ref, as git does after a push, and the event logs of the invocations.
func (p *pushOperation) recordPush(ctx context.Context) {
	r := p.r
	if p.trackingRef != "" {
		if err := transport.UpdateTrackingRef(ctx, r.Git, p.trackingRef, p.remoteTip, p.trackingTip, "update by push"); err != nil {
			r.Warn("%s: %v", p.trackingRef, err)
		}
	}
	for _, id := range p.ids {
		r.AppendEvent(id, pushEvent{r.EventTime(), verbPush, p.result.Commit, p.Branch, p.Remote, p.RemoteBranch, p.result.Tries})
	}
}

type pushEvent struct {
	Time         time.Time `json:"time"`
	Event        string    `json:"event"`
	Commit       string    `json:"commit"`
	Branch       string    `json:"branch"`
	Remote       string    `json:"remote"`
	RemoteBranch string    `json:"as"`
	Tries        int       `json:"tries"`
}

// backoff holds the approximate bounds of the wait between two attempts.
type backoff struct{ shortest, longest time.Duration }

var (
	pushBackoff = backoff{20 * time.Millisecond, time.Second}
	landBackoff = backoff{2 * time.Millisecond, 200 * time.Millisecond} // shorter, because the repository lock is held
)

// waitBackoff waits for a random time that grows with the number of tries, so that competing processes spread out.
func waitBackoff(ctx context.Context, tries int, s backoff) error {
	wait := time.NewTimer(s.shortest/2 + rand.N(min(s.shortest<<min(tries, 10), s.longest)))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wait.C:
		return nil
	}
}
