package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/preflight"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// ResumeRequest says how an agent goes on.
type ResumeRequest struct {
	ID        string          // required: id of the invocation
	Answer    []byte          // answer to its question; nil for none
	Question  *store.Question // the question that Answer is for, as the user read it; nil: the one that the agent asks now
	Task      []byte          // further task; nil for none
	Timeout   time.Duration   // zero: as before
	CommitAll bool
	Budget    store.Budget // zero fields: as before
}

// Resume records what the next run of an invocation is given: an answer, a task, or the reason why its work was rejected.
// It returns the invocation, which Execute then runs in the same sandbox with the original session.
func Resume(ctx context.Context, r *core.Repository, req ResumeRequest) (core.Invocation, error) {
	inv, err := r.Invocation(req.ID)
	if err != nil {
		return inv, err
	}
	if _, err := inv.Path(); err != nil {
		return inv, err
	}
	m := inv.Entry.Record
	switch {
	case m.SessionID == "":
		return inv, &NoRunError{ID: inv.ID}
	case inv.AsksWhileRunning() && req.Answer == nil:
		return inv, &UnansweredError{ID: inv.ID, Question: inv.Question, Options: inv.Options}
	case inv.HasOpenJob():
		return inv, sandbox.Of(r, inv.ID).CheckNoOpenJob()
	case inv.IsSupervised():
		return inv, &fault.RunningError{ID: inv.ID}
	case req.Budget.IsInvalid():
		return inv, invalidBudget()
	case req.Answer != nil && req.Task != nil:
		return inv, &fault.InvalidError{What: "resume", Want: "either an answer or a task"}
	case len(req.Answer) > MaxTask || len(req.Task) > MaxTask:
		return inv, &fault.InvalidError{What: "resume", Want: "a shorter text"}
	case inv.Question != "" && req.Answer == nil && req.Task == nil:
		return inv, &UnansweredError{ID: inv.ID, Question: inv.Question, Options: inv.Options}
	case inv.Question == "" && req.Answer != nil:
		return inv, &NoQuestionError{ID: inv.ID}
	case req.Answer != nil && req.Question != nil && !req.Question.IsSame(questionOf(inv)):
		return inv, &NotWaitingError{ID: inv.ID, AsksNext: true}
	}
	if err := r.Settings.CheckRun(); err != nil {
		return inv, err
	}
	report, err := preflight.Run(ctx, r, preflight.Request{
		Start: creation.Request{Worktree: m.IntegrationWorktreeID, Runner: m.Runner, Primitives: m.Primitives}, Argv: m.Command,
		Headless: m.Mode == store.ModeHeadless, Existing: true,
	})
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return inv, err
	}
	given := req // by the user: of a rejection, the history has the reason already
	if req.Answer == nil && req.Task == nil && m.Landing == store.Rejected {
		req.Answer = fmt.Appendf(nil, rejection, strings.TrimSpace(m.RejectedReason))
	}
	if err := claim(r, inv, given.Answer != nil); err != nil {
		return inv, err
	}
	warnUncounted(r, m.Runner, req.Budget)
	recordInputs(r, inv, given) // before the first task is replaced
	if err := req.write(r, inv.ID); err != nil {
		return inv, errors.Join(err, release(r, inv.ID))
	}
	err = r.Store.UpdateInvocationMeta(r.ID, inv.ID, func(m *store.InvocationMeta) {
		switch { // what an agent was not given yet stays
		case req.Task != nil:
			m.ResumeWith, m.Task = store.ResumeWithTask, firstLine(string(req.Task))
		case req.Answer != nil:
			m.ResumeWith = store.ResumeWithAnswer
		}
		if req.Timeout != 0 {
			m.RunTimeoutMS = milliseconds(req.Timeout)
		}
		m.CommitAll = m.CommitAll || req.CommitAll
		m.Budget = req.Budget.Or(m.Budget)
	})
	return inv, err
}

// rejection is the text for an agent whose work was rejected, with the reason.
const rejection = "Your work was rejected. The reason:\n\n%s\n\nChange your work accordingly, and commit it.\n"

// questionOf returns the question that the agent of an invocation asks.
func questionOf(inv core.Invocation) store.Question {
	return store.Question{Text: inv.Question, Options: inv.Options, Context: inv.Context, AskedAt: inv.AskedAt}
}

// claim records that this process is about to execute the run, or to have it executed, so that of several resumes only one
// gives something to the agent. An answer is refused if the agent was run since inv was read.
func claim(r *core.Repository, inv core.Invocation, isAnswer bool) error {
	var refused error
	err := r.Store.UpdateInvocationMetaIf(r.ID, inv.ID, func(m *store.InvocationMeta) bool {
		switch {
		case m.HasOpenJob() || procfs.IsAlive(m.PID, m.PIDStarted) && m.PID != os.Getpid():
			refused = &fault.RunningError{ID: inv.ID}
		case isAnswer && m.Runs != inv.Runs && m.Question == nil:
			refused = &NoQuestionError{ID: inv.ID}
		case isAnswer && m.Runs != inv.Runs:
			refused = &NotWaitingError{ID: inv.ID, AsksNext: true}
		default:
			m.PID, m.PIDStarted = os.Getpid(), procfs.Identity(os.Getpid())
		}
		return refused == nil
	})
	if err == nil {
		err = refused
	}
	return err
}

// release undoes claim.
func release(r *core.Repository, id string) error {
	return r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) { m.PID, m.PIDStarted = 0, "" })
}

// write writes the files that the agent gets. A task replaces an old answer, which would look like one to it.
func (req ResumeRequest) write(r *core.Repository, id string) error {
	if req.Task != nil {
		if err := durable.WriteFile(r.Store.TaskPath(r.ID, id), req.Task, 0o600); err != nil {
			return err
		}
	}
	answer := r.Store.AnswerPath(r.ID, id)
	switch {
	case req.Answer != nil:
		return durable.WriteFile(answer, req.Answer, 0o600)
	case req.Task == nil:
		return nil
	}
	if err := os.Remove(answer); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// NoRunError reports an invocation in which no agent was run, so that there is nothing to resume, stop or wait for.
type NoRunError struct{ ID string }

func (e *NoRunError) Error() string { return "no agent was run in " + e.ID }

// NoQuestionError reports an answer for an agent that asks nothing.
type NoQuestionError struct{ ID string }

func (e *NoQuestionError) Error() string { return "the agent of " + e.ID + " asks no question" }

// UnansweredError reports an agent that waits for an answer.
type UnansweredError struct {
	ID       string
	Question string // untrusted text
	Options  []string
}

func (e *UnansweredError) Error() string { return "the agent of " + e.ID + " waits for an answer" }
