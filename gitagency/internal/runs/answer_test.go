package runs

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// An answer to a question that another process has answered meanwhile is not given to the next question.
func TestAnswerIsNotGivenToAnotherQuestion(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	first := &store.Question{Text: "first", AskedAt: asked, ReplyTo: "0123456789abcdef"}
	for name, now := range map[string]*store.Question{
		"none":           nil,
		"another":        {Text: "second", AskedAt: asked, ReplyTo: "123456789abcdef0"},
		"the same later": {Text: "first", AskedAt: asked.Add(time.Second), ReplyTo: "123456789abcdef0"},
	} {
		h := handover{id: "20260128120500-b7c9", dir: t.TempDir(), to: first}
		var notWaiting *NotWaitingError
		if err := h.give(now); !errors.As(err, &notWaiting) || notWaiting.AsksNext != (now != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An answer names the question that the user read: to any other it is not given, neither while the agent runs nor afterwards.
func TestAnswerNamesItsQuestion(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	r, id := l.Repo, l.Sandbox.ID
	asked := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	now := &store.Question{Text: "which?", AskedAt: asked.Add(time.Minute)}
	for name, status := range map[string]string{"running": store.StatusRunning, "ended": store.StatusBlocked} {
		err := r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
			m.Status, m.SessionID, m.Question, m.PID, m.PIDStarted = status, "session", now, 0, ""
			if status == store.StatusRunning {
				m.PID, m.PIDStarted = os.Getpid(), procfs.Identity(os.Getpid())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		req := ResumeRequest{ID: id, Answer: []byte("this"), Question: &store.Question{Text: "which?", AskedAt: asked}}
		_, given, err := Answer(r, req)
		if status == store.StatusBlocked && err == nil && !given {
			_, err = Resume(t.Context(), r, req)
		}
		var notWaiting *NotWaitingError
		if given || !errors.As(err, &notWaiting) || !notWaiting.AsksNext {
			t.Errorf("%s: given %v, %v", name, given, err)
		}
		if q := r.Store.Invocation(r.ID, id, nil).Record.Question; q == nil || !q.IsSame(*now) {
			t.Errorf("%s: the question is now %v", name, q)
		}
	}
}

// An agent that was answered and asks the same again within a second asks another question.
func TestSameQuestionAgainIsAnother(t *testing.T) {
	t.Parallel()
	w := newQuestionWatch(t)
	now := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	w.repo.Opts.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
	ask := func(replyTo string) *store.Question {
		w.accept(mailbox.Question{Question: "go on?", ReplyTo: replyTo})
		return w.repo.Store.Invocation(w.repo.ID, w.sandbox.ID, nil).Record.Question
	}
	first := ask("0123456789abcdef")
	if err := w.repo.Store.UpdateInvocationMeta(w.repo.ID, w.sandbox.ID, func(m *store.InvocationMeta) { m.Question = nil }); err != nil {
		t.Fatal(err)
	}
	second := ask("123456789abcdef0")
	var notWaiting *NotWaitingError
	if err := (handover{id: w.sandbox.ID, dir: w.dir, to: first}).give(second); !errors.As(err, &notWaiting) || !notWaiting.AsksNext {
		t.Errorf("got %v", err)
	}
}

// An answer is refused if the agent was run, and asks again, after its question was read.
func TestClaimRefusesAnswerAfterAnotherRun(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	r := l.Repo
	inv, err := r.Invocation(l.Sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, question := range []*store.Question{nil, {Text: "which?"}} {
		if err := r.Store.UpdateInvocationMeta(r.ID, inv.ID, func(m *store.InvocationMeta) { m.Runs, m.Question = inv.Runs+1, question }); err != nil {
			t.Fatal(err)
		}
		err := claim(r, inv, true)
		if question == nil != fault.Is[*NoQuestionError](err) || question != nil != fault.Is[*NotWaitingError](err) {
			t.Errorf("question %v: %v", question, err)
		}
		if pid := r.Store.Invocation(r.ID, inv.ID, nil).Record.PID; pid != 0 {
			t.Errorf("claimed by %d", pid)
		}
	}
	if err := claim(r, inv, false); err != nil {
		t.Error(err)
	}
}

// The history has questions and answers in turn, however fast each follows the other.
func TestQuestionsAndAnswersAlternateInHistory(t *testing.T) {
	t.Parallel()
	const number = 30
	w := newQuestionWatch(t)
	r, id, dir := w.repo, w.sandbox.ID, w.dir
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for range number {
			if _, err := mailbox.Ask(ctx, dir, mailbox.Question{Question: "which?"}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	go func() {
		_ = mailbox.Watch(ctx, dir, func(string) { w.handleQuestion() })
		cancel()
	}()
	for ctx.Err() == nil {
		if q := r.Store.Invocation(r.ID, id, nil).Record.Question; q != nil {
			_, _ = handover{repo: r, id: id, dir: dir, text: []byte("this"), to: q}.run(1) // fails if it was answered before
		}
	}
	last, events := answerEvent, 0
	err := readEventsOf(r, id, func(name string) {
		if name == last {
			t.Errorf("event %d is a second %s", events, name)
		}
		last, events = name, events+1
	})
	if err != nil || events != 2*number {
		t.Errorf("%d events, %v", events, err)
	}
}

// A question for whose answer a process waits never ends the turn of the agent, whenever it comes.
func TestAwaitedQuestionDoesNotEndTurn(t *testing.T) {
	t.Parallel()
	w := newQuestionWatch(t)
	box, err := mailbox.Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	var asked atomic.Bool
	go func() {
		defer asked.Store(true)
		for range 1500 { // all but the first are refused: that is not answered
			err := box.WriteQuestion(mailbox.Question{Question: "which?", ReplyTo: "0123456789abcdef"})
			var unanswered *mailbox.UnansweredError
			if err != nil && !errors.As(err, &unanswered) {
				t.Error(err)
			}
		}
	}()
	for !asked.Load() {
		w.handleQuestion()
	}
	if w.ending {
		t.Error("the agent has to end its turn")
	}
}

// newQuestionWatch returns the watch of the questions of a run in this process.
func newQuestionWatch(t *testing.T) *questionWatch {
	t.Helper()
	const id = "20260128120500-b7c9"
	r := &core.Repository{ID: "repo", Store: store.Store{Root: t.TempDir()}, Opts: core.Options{Now: time.Now}, Settings: &settings.Reader{}}
	meta := store.InvocationMeta{InvocationID: id, Status: store.StatusRunning, RunFields: store.RunFields{PID: os.Getpid(), PIDStarted: procfs.Identity(os.Getpid())}}
	if err := errors.Join(os.MkdirAll(r.Store.InvocationDir(r.ID, id), 0o700), r.Store.WriteInvocationMeta(r.ID, meta)); err != nil {
		t.Fatal(err)
	}
	return &questionWatch{attempt: &attempt{repo: r, sandbox: &sandbox.Sandbox{ID: id}, askTimeout: -1}, ctx: t.Context(), dir: t.TempDir()}
}

func readEventsOf(r *core.Repository, id string, each func(name string)) error {
	log := &eventLog{id: id, path: r.Store.EventsPath(r.ID, id)}
	return log.readNew(func(e event) { each(e.name) })
}
