// Package resolve lands work whose conflicts an agent resolves. The agent works in the sandbox of the invocation, behind its
// walls, on a merge that sync has started there. If the agent fails, the sandbox is returned to its state before, and the
// landing ends as one with conflicts does.
//
// Tasks, paths and messages are untrusted text: they get to an agent only as quoted data.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Request says which agent resolves conflicts.
type Request struct {
	Runner  string         // agent; empty: the agent of each invocation
	OnAgent func(Progress) // called before an agent is run, and after it has resolved the conflicts; may be nil
}

// Progress tells about an agent that resolves conflicts.
type Progress struct {
	ID       string
	Agent    string // runner, or program of a run without one
	Paths    int    // number of paths in conflict
	Resolved bool   // it has resolved them; false: it begins
}

// Land lands as landing.Land does. If the work conflicts, an agent resolves the conflicts once, and the work is landed
// again. If it is not resolved, the error is an *UnresolvedError around the *fault.ConflictsError, and nothing has changed
// but snapshots and logs. With any other error of the second landing, the resolution stays in the sandbox.
func Land(ctx context.Context, r *core.Repository, req landing.Request, with *Request) (landing.Result, error) {
	if with == nil {
		return landing.Land(ctx, r, req)
	}
	if with.Runner != "" {
		if _, err := (runs.SideTask{Runner: with.Runner}).Agent(r, store.InvocationMeta{}); err != nil {
			return landing.Result{}, err
		}
	}
	landed, err := landing.Land(ctx, r, req)
	var conflicts *fault.ConflictsError
	if req.DryRun || !errors.As(err, &conflicts) {
		return landed, err
	}
	t := &attempt{repo: r, req: req, with: *with, id: conflicts.ID, conflicts: err}
	if failed := t.resolve(ctx); failed != nil {
		return landed, failed
	}
	again, err := landing.Land(ctx, r, req)
	if again.Commit != "" || !isAboutResolution(err) {
		return again, err
	}
	what := "its resolution"
	if t.agent == "" {
		what = "the merge with the integration branch, which has no conflicts,"
	}
	return landed, t.giveUp(ctx, what+" does not land: "+err.Error())
}

// isAboutResolution reports whether a landing failed because of what the agent committed, and not for a reason that the user
// can remove, such as local changes or a missing review.
func isAboutResolution(err error) bool {
	var verify *landing.VerifyError
	return fault.Is[*fault.ConflictsError](err) || fault.Is[*landing.NothingToLandError](err) || fault.Is[*sandbox.UncommittedError](err) ||
		fault.Is[*fault.InvalidTreeError](err) || errors.As(err, &verify) && verify.Err == nil
}

// attempt is one attempt of an agent to resolve the conflicts of one landing.
type attempt struct {
	repo      *core.Repository
	req       landing.Request
	with      Request
	id        string
	conflicts error // error of the landing

	agent  string               // runner or program; empty if no agent is run
	record store.InvocationMeta // from before
	synced sandbox.SyncResult
}

// resolve merges the integration branch into the sandbox, and has an agent resolve the conflicts there. An error means that
// the sandbox is as before.
func (t *attempt) resolve(ctx context.Context) error {
	// 1. What the agent is told. Radar has to read the sandbox before the merge changes it.
	inv, err := t.repo.Invocation(t.id)
	if err != nil {
		return t.refuse(ctx, err)
	}
	t.record = inv.Entry.Record
	side := runs.SideTask{Runner: t.with.Runner}
	if t.agent, err = side.Agent(t.repo, t.record); err != nil {
		return t.refuse(ctx, err)
	}
	rivals := t.findRivals(ctx, inv)

	// 2. The merge in the sandbox. It refuses a sandbox with uncommitted work, or in which commands run.
	s := sandbox.Of(t.repo, t.id)
	if t.synced, err = s.Sync(ctx); err != nil && !fault.Is[*fault.ConflictsError](err) {
		return t.refuse(ctx, err)
	}
	switch {
	case t.synced.Already:
		return t.refuse(ctx, errors.New("the sandbox has all of the integration branch"))
	case len(t.synced.Conflicts) == 0: // such as commits that conflict one by one in a rebase, but not together
		t.agent = ""
		return nil
	}

	// 3. The agent.
	if side.Prompt, err = t.prompt(ctx, inv, rivals); err != nil {
		return t.giveUp(ctx, err.Error())
	}
	progress := Progress{ID: t.id, Agent: t.agent, Paths: len(t.synced.Conflicts)}
	t.report(progress)
	res, err := runs.Execute(ctx, t.repo, runs.ExecuteRequest{ID: t.id, Side: &side, Force: t.req.Force})
	if err != nil {
		return t.giveUp(ctx, err.Error())
	}
	if res.Status != store.StatusFinished {
		return t.giveUp(ctx, describeEnd(res))
	}

	// 4. Its resolution.
	if problem := t.checkResolution(ctx, s); problem != "" {
		return t.giveUp(ctx, problem)
	}
	t.repo.AppendEvent(t.id, resolveEvent{Time: t.repo.EventTime(), Event: "resolve", Runner: t.agent, Paths: len(t.synced.Conflicts)})
	progress.Resolved = true
	t.report(progress)
	return nil
}

func (t *attempt) report(p Progress) {
	if t.with.OnAgent != nil {
		t.with.OnAgent(p)
	}
}

// describeEnd says how an agent ended that did not finish.
func describeEnd(res runs.Result) string {
	if res.Question != "" {
		return "it asks: " + res.Question
	}
	return res.Reason
}

// resolveEvent is the event of conflicts that an agent resolved or not.
type resolveEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Runner string    `json:"runner"`
	Paths  int       `json:"paths"`
	Reason string    `json:"reason,omitempty"` // why they are not resolved; empty if they are
}

// refuse returns the error for conflicts that no agent was run for. The sandbox is as before, unless the message says that a
// sync is half-way.
func (t *attempt) refuse(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &fault.InvocationError{Operation: "land", ID: t.id, Err: errors.Join(cause, err)}
	}
	return &UnresolvedError{ID: t.id, Reason: err.Error(), NoAgent: fault.Is[*runs.NoRunError](err), Err: t.conflicts}
}

// giveUp returns the sandbox to its state before the sync, also when ctx has ended, and returns the error of the landing.
func (t *attempt) giveUp(ctx context.Context, reason string) error {
	failed := &UnresolvedError{ID: t.id, Agent: t.agent, Reason: quote.Shorten(reason, maxReason), Before: t.synced.PreviousName, Err: t.conflicts}
	rolled, err := sandbox.Of(t.repo, t.id).Rollback(context.WithoutCancel(ctx), sandbox.RollbackRequest{Snapshot: t.synced.PreviousName})
	if err == nil && !rolled.Already {
		failed.Left = rolled.LeftName
	}
	failed.RestoreErr = errors.Join(err, t.restoreSubmission())
	t.repo.AppendEvent(t.id, resolveEvent{Time: t.repo.EventTime(), Event: "resolve", Runner: t.agent, Paths: len(t.synced.Conflicts), Reason: failed.Reason})
	if cause := context.Cause(ctx); cause != nil {
		return &fault.InvocationError{Operation: "land", ID: t.id, Err: errors.Join(cause, failed.RestoreErr)}
	}
	return failed
}

// maxReason bounds the message of an agent in an error.
const maxReason = 2000

// restoreSubmission undoes a submission that the agent made of commits that are no longer in the sandbox.
func (t *attempt) restoreSubmission() error {
	return t.repo.Store.UpdateInvocationMetaIf(t.repo.ID, t.id, func(m *store.InvocationMeta) bool {
		if m.Landing != store.Review || m.SubmittedCommit == t.record.SubmittedCommit {
			return false
		}
		m.Landing, m.Submission = t.record.Landing, t.record.Submission
		return true
	})
}

// UnresolvedError reports conflicts of a landing that an agent was to resolve and did not. Nothing has landed.
type UnresolvedError struct {
	ID         string
	Agent      string // runner, or program of a run without one; empty if no agent was run
	Reason     string // what the agent did, or why none was run; may contain untrusted text
	NoAgent    bool   // the invocation has no agent, and none was named
	Before     string // name of the snapshot from before the agent; empty if none was run
	Left       string // name of the snapshot of what the agent left; empty if it changed nothing
	RestoreErr error  // reason why the sandbox is not in the state of Before; nil if it is
	Err        error  // conflicts
}

func (e *UnresolvedError) Error() string {
	text := fmt.Sprintf("%v; no agent was run to resolve them: %s", e.Err, e.Reason)
	if e.Agent != "" {
		text = fmt.Sprintf("%v; %s did not resolve them: %s", e.Err, e.Agent, e.Reason)
	}
	if e.RestoreErr != nil {
		text += fmt.Sprintf("; the sandbox was not returned to its state before: %v", e.RestoreErr)
	}
	return text
}

func (e *UnresolvedError) Unwrap() error { return e.Err }
