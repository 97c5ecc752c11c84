package runs

import (
	"slices"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// maxKeptWarnings bounds the different warnings of one run in its history.
const maxKeptWarnings = 100

const warningEventName = "warning"

// warningEvent is the event of a warning of the process of a detached run.
type warningEvent struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Message string    `json:"message"`
}

// keepWarnings returns the repository with a receiver of warnings that appends them to the history of an invocation: the
// process of a detached run has no terminal. A warning that is repeated, such as after each snapshot that fails, is kept once.
func keepWarnings(r *core.Repository, id string) *core.Repository {
	var (
		mu   sync.Mutex
		kept []string
	)
	return r.WithWarn(func(message string) {
		mu.Lock()
		defer mu.Unlock()
		message = quote.Shorten(message, maxEventText)
		switch {
		case len(kept) > maxKeptWarnings || slices.Contains(kept, message):
			return
		case len(kept) == maxKeptWarnings:
			message = "further warnings of this run are not kept"
		}
		kept = append(kept, message)
		if err := r.Store.AppendEvent(r.ID, id, warningEvent{r.EventTime(), warningEventName, message}); err != nil {
			r.Warn("%s; history of %s: %v", message, id, err)
		}
	})
}
