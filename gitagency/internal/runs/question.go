package runs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// takeQuestion takes the question that the agent left, if any.
func (a *attempt) takeQuestion() (*store.Question, error) {
	q, asked, err := mailbox.TakeQuestion(a.sandbox.MailboxDir(a.record.Primitives))
	if !asked {
		return nil, err
	}
	return &store.Question{Text: q.Question, Options: q.Options, Context: q.Context, AskedAt: a.repo.Now()}, err
}

// turnGrace is how long an agent that has asked may work on, to end its turn by itself.
const turnGrace = 30 * time.Second

// errAsked is the cause of the end of an agent that has asked a question.
var errAsked = errors.New("the agent has asked a question")

// endAfterQuestion ends an agent that has asked a question and does not end by itself. stop ends the watch.
func (a *attempt) endAfterQuestion(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	dir := a.sandbox.MailboxDir(a.record.Primitives)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		a.repo.Warn("sandbox %s: a question is not noticed before its agent ends: %v", a.sandbox.ID, err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked := false
	go func() { // not waited for: the kernel may take milliseconds to end a watch
		err := mailbox.Watch(ctx, dir, func(string) {
			if _, err := os.Lstat(filepath.Join(dir, mailbox.QuestionFile)); err == nil && !asked {
				asked = true
				timer := time.AfterFunc(turnGrace, func() { end(errAsked) })
				context.AfterFunc(ctx, func() { timer.Stop() })
			}
		})
		if err != nil && ctx.Err() == nil {
			a.repo.Warn("sandbox %s: a question is not noticed before its agent ends: %v", a.sandbox.ID, err)
		}
	}()
	return cancel
}
