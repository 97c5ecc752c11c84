package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// A run on another platform is executed there by Execute in a sandbox of that machine. Here its begin and its end are recorded.

// BeginJob records that a run begins that another machine will execute, and that this process submits it. It returns the
// record from before.
func BeginJob(r *core.Repository, id string) (before store.InvocationMeta, err error) {
	before, err = begin(r, id, ExecuteRequest{})
	if err != nil {
		return before, err
	}
	(&attempt{repo: r, sandbox: sandbox.Of(r, id), record: before}).markRun()
	return before, r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
		m.PlatformFields = store.PlatformFields{PlatformState: store.PlatformSubmitting, ResultCommit: m.ResultCommit}
	})
}

// JobEnd is the end of a run that another machine has executed. Its texts are untrusted.
type JobEnd struct {
	Result
	Question *store.Question
	WasRun   bool           // the program was started
	Spent    runner.Summary // what the agent spent, and the session that it told
	Stdout   []byte
	Stderr   []byte
	Setup    []byte // output of agency.setup; nil for none

	// Change changes the record further; may be nil. No run is recorded as going on afterwards.
	Change func(*store.InvocationMeta)
}

// EndJob records the end of a run that another machine has executed, with its output. It does nothing if no such run goes
// on. A process that is killed meanwhile leaves a run that goes on, and perhaps its output; then the end is recorded by another
// call, and the output is written again.
func EndJob(ctx context.Context, r *core.Repository, id string, end JobEnd, later func(lastStep func())) error {
	s := sandbox.Of(r, id)
	a := &attempt{repo: r, sandbox: s, record: r.Store.Invocation(r.ID, id, nil).Record, req: ExecuteRequest{Detached: later == nil}}
	if !a.record.HasOpenJob() {
		return nil
	}
	if err := a.writeOutput(end); err != nil {
		end.Warnings = append(end.Warnings, "its output could not be kept: "+err.Error())
	}
	end.ID, end.Path, end.question = id, s.Tree, end.Question
	recorded, now := false, r.Now()
	err := r.Store.UpdateInvocationMetaIf(r.ID, id, func(m *store.InvocationMeta) bool {
		if recorded = m.HasOpenJob(); !recorded { // by another process
			return false
		}
		m.Status, m.StatusReason, m.Warnings, m.LastMessage, m.Question = end.Status, end.Reason, end.Warnings, end.LastMessage, end.question
		m.PID, m.PIDStarted, m.PlatformState, m.PlatformDetail = 0, "", "", ""
		m.WasRun = end.WasRun
		if end.WasRun {
			m.ResumeWith = "" // the agent was given it
		}
		if !m.HasEnded() {
			m.ExitCode, m.FinishedAt = json.Number(strconv.Itoa(end.ExitCode)), &now
		}
		addSpent(m, end.Spent)
		if end.Change != nil {
			end.Change(m)
		}
		return true
	})
	if err != nil || !recorded {
		return err
	}
	a.appendEndEvent(end.Result)
	if later != nil {
		later(func() { a.announce(ctx, end.Result) })
	} else {
		a.announce(ctx, end.Result)
	}
	return nil
}

// writeOutput writes the output of the run after that of the runs before it.
func (a *attempt) writeOutput(end JobEnd) (err error) {
	outputs, _, err := readRunOutputs(a.repo, a.sandbox.ID)
	if err != nil {
		return err
	}
	starts := map[string]logPosition{}
	if len(outputs) > 0 {
		starts = outputs[len(outputs)-1].starts
	}
	for _, stream := range []struct {
		name string
		text []byte
	}{
		{"stdout", end.Stdout},
		{"stderr", end.Stderr},
	} {
		path := a.repo.Store.OutputPath(a.repo.ID, a.sandbox.ID, stream.name)
		if at := starts[stream.name]; at.isCurrent { // what a killed process has written of it
			if cutErr := os.Truncate(path, at.offset); !errors.Is(cutErr, fs.ErrNotExist) {
				err = errors.Join(err, cutErr)
			}
		}
		if len(stream.text) == 0 {
			continue
		}
		log, openErr := a.openLog(stream.name, maxLog)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		_, writeErr := log.Write(stream.text)
		err = errors.Join(err, writeErr, log.file.Close())
	}
	if end.Setup != nil {
		err = errors.Join(err, durable.WriteFile(a.repo.Store.SetupLogPath(a.repo.ID, a.sandbox.ID), end.Setup, 0o600))
	}
	return err
}

// RunTimeout returns the time limit of a run by its record; negative for none.
func RunTimeout(r *core.Repository, m store.InvocationMeta) (time.Duration, error) {
	return timeout(r, m, false)
}

// AgentVariables returns the variables of an environment that are meant for an agent: those that a known agent reads, and those that
// the settings let through the walls.
func AgentVariables(r *core.Repository, runner string) ([]string, error) {
	policy, err := r.Settings.PassedVariables()
	if err != nil {
		return nil, err
	}
	if spec, known := findSpec(r, runner); known {
		policy = append(policy, spec.PassNames(r.Opts.Env)...)
	}
	return passedVariables(r.Opts.Env, policy), nil
}

// LiveOutput returns writers for the output of a run that another machine executes, which pass it on as Execute passes that of a run
// here; nil if it is not wanted. end passes on a last line without a newline.
func LiveOutput(r *core.Repository, runner string, req ExecuteRequest) (stdout, stderr io.Writer, end func()) {
	spec, known := findSpec(r, runner)
	if req.OnEvent == nil || !known || spec.NewStream == nil {
		return req.Stdout, req.Stderr, func() {}
	}
	stream := &streamReader{stream: spec.NewStream(), report: req.OnEvent}
	stdout, stderr = stream, errorReader{stream}
	if req.Stdout != nil {
		stdout = io.MultiWriter(req.Stdout, stdout)
	}
	if req.Stderr != nil {
		stderr = io.MultiWriter(req.Stderr, stderr)
	}
	return stdout, stderr, stream.endLine
}

// CopyLastOutput copies what the last run wrote to a stream, from a position on, from its log.
func CopyLastOutput(r *core.Repository, id, stream string, from int64, to io.Writer) error {
	outputs, _, err := readRunOutputs(r, id)
	if err != nil || len(outputs) == 0 {
		return err
	}
	log := &tail{path: r.Store.OutputPath(r.ID, id, stream), to: io.Discard}
	defer log.close()
	if err := log.copyUntil(outputs[len(outputs)-1].starts[stream]); err != nil {
		return err
	}
	log.to = &skipWriter{skip: from, to: to}
	return log.copyNew()
}

// skipWriter does not pass on the first bytes.
type skipWriter struct {
	skip int64
	to   io.Writer
}

func (w *skipWriter) Write(p []byte) (int, error) {
	skipped := min(w.skip, int64(len(p)))
	w.skip -= skipped
	n, err := w.to.Write(p[skipped:])
	return int(skipped) + n, err
}
