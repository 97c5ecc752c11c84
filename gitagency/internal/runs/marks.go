package runs

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// outputStreams are the logs of an agent's output, in the order in which they are printed.
var outputStreams = []string{"terminal", "stdout", "stderr"}

// outputMark is a line of output.jsonl: where a run begins in the logs of the agent's output, or that a log was rotated. The
// logs themselves contain the output only.
type outputMark struct {
	Time   time.Time        `json:"time"`
	Event  string           `json:"event"`            // markRun or markRotation
	Runs   int              `json:"runs,omitempty"`   // number of the run; 0 for a task besides that of the invocation
	Sizes  map[string]int64 `json:"sizes,omitempty"`  // sizes of the logs when the run began
	Stream string           `json:"stream,omitempty"` // the log that was rotated

	IsUnrecorded bool `json:"unrecorded,omitempty"` // the agent writes on the terminal of the user, and not to the logs
}

const (
	markRun      = "run"
	markRotation = "rotation"
)

// markRun notes where the output of this run begins in the logs.
func (a *attempt) markRun() {
	mark := outputMark{Time: a.repo.EventTime(), Event: markRun, Sizes: map[string]int64{}, IsUnrecorded: a.req.Terminal}
	if a.req.Side == nil {
		mark.Runs = a.record.Runs + 1
	}
	for _, stream := range outputStreams {
		if fi, err := os.Lstat(a.repo.Store.OutputPath(a.repo.ID, a.sandbox.ID, stream)); err == nil {
			mark.Sizes[stream] = fi.Size()
		}
	}
	a.appendMark(mark)
}

// appendMark adds a mark. Without it, the output is still there, so a failure is only a warning.
func (a *attempt) appendMark(mark outputMark) {
	if err := a.repo.Store.AppendOutputMark(a.repo.ID, a.sandbox.ID, mark); err != nil {
		a.repo.Warn("output of %s: %v", a.sandbox.ID, err)
	}
}

// openLog opens a log of the agent's output.
func (a *attempt) openLog(stream string, most int64) (*logFile, error) {
	return openLog(a.repo.Store.OutputPath(a.repo.ID, a.sandbox.ID, stream), most, func() {
		a.appendMark(outputMark{Time: a.repo.EventTime(), Event: markRotation, Stream: stream})
	})
}

// runOutput is where the output of a run begins.
type runOutput struct {
	number int // 0 for a task besides that of the invocation
	began  time.Time
	starts map[string]logPosition // by stream

	isUnrecorded bool // the agent wrote on the terminal of the user
}

// logPosition is a place in a log: in its older part, or in the current one. The zero value is the beginning of what is kept.
type logPosition struct {
	isCurrent bool
	offset    int64
}

// readRunOutputs returns where the output of each run begins, and whether some of the output is not kept any more. Lines that
// are no marks are left out.
func readRunOutputs(r *core.Repository, id string) (outputs []runOutput, isDropped bool, err error) {
	var runs []outputMark
	var before []map[string]int // rotations of each log before a run
	rotations := map[string]int{}
	err = r.Store.ReadOutputMarks(r.ID, id, func(line []byte) {
		var mark outputMark
		switch {
		case json.Unmarshal(line, &mark) != nil:
		case mark.Event == markRotation && slices.Contains(outputStreams, mark.Stream):
			rotations[mark.Stream]++
		case mark.Event == markRun:
			runs = append(runs, mark)
			counts := map[string]int{}
			for _, stream := range outputStreams {
				counts[stream] = rotations[stream]
			}
			before = append(before, counts)
		}
	})
	for i, mark := range runs {
		output := runOutput{number: mark.Runs, began: mark.Time, starts: map[string]logPosition{}, isUnrecorded: mark.IsUnrecorded}
		for _, stream := range outputStreams {
			switch rotations[stream] - before[i][stream] {
			case 0:
				output.starts[stream] = logPosition{isCurrent: true, offset: mark.Sizes[stream]}
			case 1:
				output.starts[stream] = logPosition{offset: mark.Sizes[stream]}
			}
		}
		outputs = append(outputs, output)
	}
	for _, count := range rotations {
		isDropped = isDropped || count > 1
	}
	return outputs, isDropped, err
}
