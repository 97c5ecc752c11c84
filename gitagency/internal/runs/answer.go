package runs

import (
	"cmp"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Answer gives an answer to an agent that waits for it while it runs. given is false, without an error, if the invocation is
// not running: then Resume takes the answer. Of several answers at once the agent gets one; the others fail. Of req it uses
// ID, Answer and Question.
func Answer(r *core.Repository, req ResumeRequest) (inv core.Invocation, given bool, err error) {
	inv, err = r.Invocation(req.ID)
	if err != nil || !inv.IsSupervised() || inv.Status != store.StatusRunning {
		return inv, false, err
	}
	if len(req.Answer) > MaxTask {
		return inv, false, &fault.InvalidError{What: "resume", Want: "a shorter text"}
	}
	to := cmp.Or(req.Question, inv.Entry.Record.Question)
	h := handover{repo: r, id: inv.ID, dir: sandbox.Of(r, inv.ID).MailboxDir(inv.Entry.Record.Primitives), text: req.Answer, time: r.EventTime(), to: to}
	given, err = h.run(inv.Runs)
	return inv, given, err
}

// handover is an answer for a running agent, and where it is written.
type handover struct {
	repo *core.Repository
	id   string
	dir  string // mailbox
	text []byte
	time time.Time       // before the agent could go on
	to   *store.Question // the question that it answers; nil for none
}

// run gives the answer. It is in the history before the agent can ask again, which needs the lock of the record, and also if
// the record cannot be written: the agent has it.
func (h handover) run(runs int) (given bool, err error) {
	var failed error
	err = h.repo.Store.UpdateInvocationMetaIf(h.repo.ID, h.id, func(m *store.InvocationMeta) bool {
		if m.Status != store.StatusRunning || !procfs.IsAlive(m.PID, m.PIDStarted) { // it has ended meanwhile
			return false
		}
		if failed = h.give(m.Question); failed == nil {
			m.Question, given = nil, true
			h.record(runs)
		}
		return given
	})
	if err == nil {
		err = failed
	}
	return given, err
}

// give writes the answer into the mailbox, if a process waits there. The lock of the record is held, so that no other answer
// comes between. The agent may have got another answer meanwhile, and ask the next question.
func (h handover) give(q *store.Question) error {
	if q == nil || h.to == nil {
		return &NotWaitingError{ID: h.id}
	}
	if !q.IsSame(*h.to) {
		return &NotWaitingError{ID: h.id, AsksNext: true}
	}
	switch awaited, err := mailbox.IsAwaited(h.dir, q.ReplyTo); {
	case err != nil:
		return err
	case !awaited:
		return &NotWaitingError{ID: h.id, Asked: true}
	}
	if err := durable.WriteFile(h.repo.Store.AnswerPath(h.repo.ID, h.id), h.text, 0o600); err != nil {
		return err
	}
	return mailbox.WriteAnswer(h.dir, q.ReplyTo, mailbox.Answer{Kind: mailbox.Answered, Text: h.text})
}

// record adds the answer to the history. The event has no text of the user.
func (h handover) record(runs int) {
	h.repo.AppendEvent(h.id, answeredEvent{h.time, answerEvent})
	input := inputEvent{Time: h.time, Event: answerEvent, Runs: runs, Text: quote.Shorten(string(h.text), maxInput), WhileRunning: true}
	if err := h.repo.Store.AppendInput(h.repo.ID, h.id, input); err != nil {
		h.repo.Warn("history of %s: %v", h.id, err)
	}
}

// answeredEvent is the event of an agent that was given an answer while it runs.
type answeredEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
}

// NotWaitingError reports an answer for an agent that does not wait for it.
type NotWaitingError struct {
	ID    string
	Asked bool // it has asked a question, and works on

	AsksNext bool // it waits for the answer to another question
}

func (e *NotWaitingError) Error() string {
	if e.AsksNext {
		return "the agent of " + e.ID + " asks another question now; the answer was not given"
	}
	if e.Asked {
		return "the agent of " + e.ID + " works on, and does not wait for the answer any more"
	}
	return "the agent of " + e.ID + " works, and waits for no answer"
}
