package runs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// maxInput bounds a text of the user in the log of inputs, so that its line can be read again.
const maxInput = 32 << 10

// inputEvent is a text that the user gave to the agent, with the run that got it first.
type inputEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"` // taskEvent or answerEvent
	Runs  int       `json:"runs"`  // number of the run
	Text  string    `json:"text"`

	WhileRunning bool `json:"while_running,omitempty"` // an answer that the agent was given during that run
}

func (e inputEvent) isTask() bool { return e.Event == taskEvent }

const (
	taskEvent   = "task"
	answerEvent = "answer"
)

// recordInputs appends the text that the next run is given to the log of inputs: the files that agents get hold only the last task
// and the last answer. The first task is copied before another one replaces it. A failure is only a warning, as that of an
// event.
func recordInputs(r *core.Repository, inv core.Invocation, req ResumeRequest) {
	input := inputEvent{Time: r.EventTime(), Runs: inv.Runs + 1}
	switch {
	case req.Task != nil:
		input.Event, input.Text = taskEvent, quote.Shorten(string(req.Task), maxInput)
	case req.Answer != nil:
		input.Event, input.Text = answerEvent, quote.Shorten(string(req.Answer), maxInput)
	default:
		return
	}
	logged, err := readInputs(r, inv.ID)
	add := []inputEvent{input}
	if req.Task != nil && !slices.ContainsFunc(logged, inputEvent.isTask) {
		if first, known := firstTask(r, inv, nil); known {
			add = []inputEvent{first, input}
		}
	}
	for _, input := range add {
		err = errors.Join(err, r.Store.AppendInput(r.ID, inv.ID, input))
	}
	if err != nil {
		r.Warn("history of %s: %v", inv.ID, err)
	}
}

// readInputs returns the log of inputs. Lines that are no inputs are left out.
func readInputs(r *core.Repository, id string) ([]inputEvent, error) {
	var inputs []inputEvent
	err := r.Store.ReadInputs(r.ID, id, func(line []byte) {
		var input inputEvent
		if json.Unmarshal(line, &input) == nil && (input.Event == taskEvent || input.Event == answerEvent) {
			inputs = append(inputs, input)
		}
	})
	return inputs, err
}

// firstTask returns the task of the first run, if there was one: from the log of inputs if a later task has replaced it,
// else from the file that the agent gets.
func firstTask(r *core.Repository, inv core.Invocation, logged []inputEvent) (first inputEvent, known bool) {
	if i := slices.IndexFunc(logged, inputEvent.isTask); i >= 0 {
		return logged[i], logged[i].Runs == 1
	}
	text, err := ReadTask(r, inv.ID)
	return inputEvent{Time: inv.StartedAt, Event: taskEvent, Runs: 1, Text: quote.Shorten(string(text), maxInput)}, err == nil && text != nil
}

// ReadTask returns the last task that the agent of an invocation was given; nil if there was none.
func ReadTask(r *core.Repository, id string) ([]byte, error) {
	text, err := durable.ReadFile(r.Store.TaskPath(r.ID, id), MaxTask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
