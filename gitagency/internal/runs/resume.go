package runs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/preflight"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// ResumeRequest says how an agent goes on.
type ResumeRequest struct {
	ID        string        // required: id of the invocation
	Answer    []byte        // answer to its question; nil for none
	Task      []byte        // further task; nil for none
	Timeout   time.Duration // zero: as before
	CommitAll bool
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
	case inv.IsSupervised():
		return inv, &fault.RunningError{ID: inv.ID}
	case req.Answer != nil && req.Task != nil:
		return inv, &fault.InvalidError{What: "resume", Want: "either an answer or a task"}
	case len(req.Answer) > maxTask || len(req.Task) > maxTask:
		return inv, &fault.InvalidError{What: "resume", Want: "a shorter text"}
	case m.Question != nil && req.Answer == nil && req.Task == nil:
		return inv, &UnansweredError{ID: inv.ID, Question: m.Question.Text, Options: m.Question.Options}
	case m.Question == nil && req.Answer != nil:
		return inv, &NoQuestionError{ID: inv.ID}
	}
	report, err := preflight.Run(ctx, r, preflight.Request{
		Start: sandbox.StartRequest{Worktree: m.IntegrationWorktreeID, Runner: m.Runner, Primitives: m.Primitives}, Argv: m.Command,
		Headless: m.Mode == "headless", Existing: true,
	})
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return inv, err
	}
	if req.Answer == nil && req.Task == nil && m.Landing == store.Rejected {
		req.Answer = []byte(m.RejectedReason + "\n")
	}
	recordInputs(r, inv, req) // before the first task is replaced
	if err := req.write(r, inv.ID); err != nil {
		return inv, err
	}
	err = r.Store.UpdateInvocationMeta(r.ID, inv.ID, func(m *store.InvocationMeta) {
		m.ResumeWith = ""
		switch {
		case req.Task != nil:
			m.ResumeWith, m.Task = store.ResumeWithTask, firstLine(string(req.Task))
		case req.Answer != nil:
			m.ResumeWith = store.ResumeWithAnswer
		}
		if req.Timeout != 0 {
			m.RunTimeoutMS = milliseconds(req.Timeout)
		}
		m.CommitAll = m.CommitAll || req.CommitAll
	})
	return inv, err
}

// write writes the files that the agent gets. An old answer is removed: it would look like one to this question.
func (req ResumeRequest) write(r *core.Repository, id string) error {
	if req.Task != nil {
		if err := durable.WriteFile(r.Store.TaskPath(r.ID, id), req.Task, 0o600); err != nil {
			return err
		}
	}
	answer := r.Store.AnswerPath(r.ID, id)
	if req.Answer != nil {
		return durable.WriteFile(answer, req.Answer, 0o600)
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
