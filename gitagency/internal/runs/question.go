package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// turnGrace is how long an agent that has asked may work on, to end its turn by itself.
const turnGrace = 30 * time.Second

// errAsked is the cause of the end of an agent that has asked a question.
var errAsked = errors.New("the agent has asked a question")

// askReason is the StatusReason of an agent that asks.
const askReason = "it asks a question"

// takeQuestion takes the question that the agent left in the mailbox, if any.
func (a *attempt) takeQuestion() (*store.Question, error) {
	q, asked, err := mailbox.TakeQuestion(a.sandbox.MailboxDir(a.record.Primitives))
	if !asked {
		return nil, err
	}
	return newQuestion(q, a.repo.EventTime()), err
}

func newQuestion(q mailbox.Question, askedAt time.Time) *store.Question {
	return &store.Question{Text: q.Question, Options: q.Options, Context: q.Context, AskedAt: askedAt, ReplyTo: q.ReplyTo}
}

// lastQuestion returns the question that the agent left unanswered when it ended: in the mailbox, else in the record.
func (a *attempt) lastQuestion(res *Result) *store.Question {
	left, err := a.takeQuestion()
	if err != nil {
		res.Warnings = append(res.Warnings, err.Error())
	}
	var awaited *store.Question
	if a.askTimeout != 0 {
		awaited = a.repo.Store.Invocation(a.repo.ID, a.sandbox.ID, nil).Record.Question
	}
	last := left
	switch {
	case left == nil:
		last = awaited
	case awaited != nil && !left.Equal(*awaited):
		res.Warnings = append(res.Warnings, fmt.Sprintf("its question %q was replaced by that of its question file", quote.Shorten(awaited.Text, 200)))
	}
	if last != nil {
		last.ReplyTo = "" // none of its processes waits any more
	}
	return last
}

// questionWatch handles the questions that an agent asks while it runs. A question of a process that waits for the answer is
// put into the record, where Answer finds it. Any other stays in the mailbox until the agent ends, which it has to do soon.
type questionWatch struct {
	*attempt
	ctx context.Context
	dir string
	end context.CancelCauseFunc

	mu      sync.Mutex
	stopped bool
	ending  bool        // the agent has to end its turn
	asked   int         // number of questions that were recorded
	expiry  *time.Timer // of the last of them; nil if it does not expire
}

// watchQuestions starts to handle questions. stop ends that; questions that come later stay in the mailbox.
func (a *attempt) watchQuestions(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	dir := a.sandbox.MailboxDir(a.record.Primitives)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		a.repo.Warn("sandbox %s: a question is not noticed before its agent ends: %v", a.sandbox.ID, err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &questionWatch{attempt: a, ctx: ctx, dir: dir, end: end}
	go func() { // not waited for: the kernel may take milliseconds to end a watch
		err := mailbox.Watch(ctx, dir, func(name string) {
			if name == "" || name == mailbox.QuestionFile {
				w.handleQuestion()
			}
		})
		if err != nil && ctx.Err() == nil {
			a.repo.Warn("sandbox %s: a question is not noticed before its agent ends: %v", a.sandbox.ID, err)
		}
	}()
	return func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.stopExpiry()
	}
}

// handleQuestion handles the question that is in the mailbox, if any.
func (w *questionWatch) handleQuestion() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if _, err := os.Lstat(filepath.Join(w.dir, mailbox.QuestionFile)); err != nil { // first: one that comes later is looked at later
		return
	}
	if w.askTimeout != 0 {
		q, awaited, err := mailbox.TakeAwaitedQuestion(w.dir)
		if err != nil {
			w.repo.Warn("sandbox %s: %v", w.sandbox.ID, err)
		}
		if awaited {
			w.accept(q)
			return
		}
	}
	w.endTurn()
}

// accept records a question for whose answer a process waits, unless an earlier one is not answered yet. A process that asks
// the same again, after the one before has ended, waits for the same answer.
func (w *questionWatch) accept(q mailbox.Question) {
	if w.ending {
		w.reply(q.ReplyTo, mailbox.Answer{Kind: mailbox.Expired})
		return
	}
	question, refused, again := newQuestion(q, w.repo.EventTime()), "", false
	err := w.repo.Store.UpdateInvocationMetaIf(w.repo.ID, w.sandbox.ID, func(m *store.InvocationMeta) bool {
		if earlier := m.Question; earlier != nil {
			if again = earlier.Equal(*question) && !w.isAwaited(earlier.ReplyTo); !again {
				refused = (&mailbox.UnansweredError{Earlier: earlier.Text}).Error()
				return false
			}
			question.AskedAt = earlier.AskedAt
		}
		m.Question = question
		if !again { // before the lock of the record allows to answer it
			w.repo.AppendEvent(w.sandbox.ID, statusEvent{Time: w.repo.EventTime(), Event: questionEventName, Question: quote.Shorten(q.Question, maxEventText)})
		}
		return true
	})
	if err != nil {
		refused = "the question could not be recorded: " + err.Error()
	}
	switch {
	case refused != "":
		w.reply(q.ReplyTo, mailbox.Answer{Kind: mailbox.Refused, Text: []byte(refused)})
	case !again:
		w.tellUser(*question)
	}
}

// isAwaited reports whether a process waits for an answer. It is false if that cannot be found out.
func (w *questionWatch) isAwaited(id string) bool {
	awaited, err := mailbox.IsAwaited(w.dir, id)
	return awaited && err == nil
}

// tellUser tells the user a question that was recorded, and limits how long its answer is waited for.
func (w *questionWatch) tellUser(q store.Question) {
	w.asked++
	w.stopExpiry()
	if number := w.asked; w.askTimeout > 0 {
		w.expiry = time.AfterFunc(w.askTimeout, func() { w.expire(number) })
	}
	if w.req.OnQuestion != nil {
		w.req.OnQuestion(q.Text, q.Options)
	}
	ctx := context.WithoutCancel(w.ctx)
	w.notices.Go(func() { w.notify(ctx, notification{Status: store.StatusBlocked, Reason: askReason, Question: q.Text}) })
}

// questionEventName is the event of an agent that asks and waits for the answer while it runs.
const questionEventName = "question"

func (w *questionWatch) stopExpiry() {
	if w.expiry != nil {
		w.expiry.Stop()
	}
}

// expire tells an agent that no answer came to a question, unless one did.
func (w *questionWatch) expire(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || number != w.asked {
		return
	}
	replyTo := ""
	err := w.repo.Store.UpdateInvocationMetaIf(w.repo.ID, w.sandbox.ID, func(m *store.InvocationMeta) bool {
		if m.Question == nil {
			return false
		}
		replyTo, m.Question.ReplyTo = m.Question.ReplyTo, "" // from now on only resume answers it
		return true
	})
	if err != nil {
		w.repo.Warn("sandbox %s: the agent goes on waiting for an answer: %v", w.sandbox.ID, err)
	}
	if replyTo != "" && err == nil {
		w.reply(replyTo, mailbox.Answer{Kind: mailbox.Expired})
		w.endTurn()
	}
}

// reply replies to a process that waits.
func (w *questionWatch) reply(id string, answer mailbox.Answer) {
	if err := mailbox.WriteAnswer(w.dir, id, answer); err != nil {
		w.repo.Warn("sandbox %s: a question is not replied to: %v", w.sandbox.ID, err)
	}
}

// endTurn ends the agent after a grace period, if it does not end by itself.
func (w *questionWatch) endTurn() {
	if w.ending {
		return
	}
	w.ending = true
	timer := time.AfterFunc(turnGrace, func() { w.end(errAsked) })
	context.AfterFunc(w.ctx, func() { timer.Stop() })
}
