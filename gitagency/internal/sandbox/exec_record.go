package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// execRecord writes what is kept of a command that has ended: an event in the history of the invocation, and its exit
// code in the record.
type execRecord struct {
	sandbox  *Sandbox
	recorded chan error // result of writing the record; nil until write
}

// write appends the event and begins to write the record. It does not wait for the disk; wait does.
func (r *execRecord) write(opts ExecOptions, dir string, res ExecResult) {
	s := r.sandbox
	s.appendExecEvent(opts, dir, res)
	r.recorded = make(chan error, 1)
	go func() { r.recorded <- s.Repo.Store.RecordExec(s.Repo.ID, s.ID, res.ExitCode, s.Repo.Now()) }()
}

// wait waits until the record is written. A failure is only a warning: the command has run.
func (r *execRecord) wait() {
	if r.recorded == nil {
		return
	}
	if err := <-r.recorded; err != nil && !errors.Is(err, fs.ErrNotExist) { // a pruned invocation has no record
		r.sandbox.Repo.Warn("sandbox %s: the exit code could not be recorded: %v", r.sandbox.ID, err)
	}
}

// appendExecEvent appends the command to the history of the invocation, without values of variables.
func (s *Sandbox) appendExecEvent(opts ExecOptions, dir string, res ExecResult) {
	cwd, err := filepath.Rel(s.Tree, dir)
	if err != nil || !filepath.IsLocal(cwd) { // in a plain directory
		cwd = dir
	}
	s.Repo.AppendEvent(s.ID, execEvent{
		Time: s.Repo.EventTime(), Event: "exec", Argv: opts.Argv, Cwd: cwd, Duration: res.Duration.Milliseconds(),
		ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, ContainedBy: res.ContainedBy, Walls: res.Walls, Limits: limitEnforcers(res.Limits),
	})
}

type execEvent struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Argv        []string  `json:"argv"`
	Cwd         string    `json:"cwd"`
	Duration    int64     `json:"duration_ms"`
	ExitCode    int       `json:"exit_code"`
	Signal      string    `json:"signal"`
	TimedOut    bool      `json:"timed_out"`
	ContainedBy string    `json:"contained_by"`
	Walls       []string  `json:"walls"`

	Limits map[string]string `json:"limits,omitempty"` // enforcement mechanism by limit; the time limit always exists and is not listed
}
