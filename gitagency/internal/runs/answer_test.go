package runs

import (
	"errors"
	"testing"
	"time"

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
