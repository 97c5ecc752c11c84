package runs

import (
	"cmp"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// SideTask is a task besides that of an invocation, such as to resolve the conflicts of its landing. An agent works on it in
// the sandbox of the invocation. The record keeps the task and the status of the invocation; what the agent spends is added.
type SideTask struct {
	Runner string // agent; empty: the agent or command of the invocation, in its session
	Prompt []byte // required
}

// Agent returns the name of the agent for a side task, or the program of a run without one. It fails if there is none, or
// if it is not known.
func (t SideTask) Agent(r *core.Repository, m store.InvocationMeta) (string, error) {
	if t.Runner == "" && len(m.Command) > 0 {
		return m.Command[0], nil
	}
	name := cmp.Or(t.Runner, m.Runner)
	if name == "" {
		return "", &NoRunError{ID: m.InvocationID}
	}
	if known := runnable(r); !slices.Contains(known, name) {
		return "", creation.UnknownRunnerError(name, known)
	}
	return name, nil
}

// adapt returns the record of an invocation as that of the agent of the side task. An agent that has no session in the
// sandbox gets a new one.
func (t SideTask) adapt(m store.InvocationMeta) (store.InvocationMeta, error) {
	if t.continuesSession(m) {
		return m, nil
	}
	id, err := NewSessionID()
	if t.Runner != "" {
		m.Runner, m.Command = t.Runner, nil
	}
	m.SessionID, m.RunnerSession, m.Runs = id, "", 0
	return m, err
}

// continuesSession reports whether the agent of the side task has a session in the sandbox.
func (t SideTask) continuesSession(m store.InvocationMeta) bool {
	return m.SessionID != "" && (t.Runner == "" || t.Runner == m.Runner)
}

// recordSideEnd writes the end of the run of a side task to the record and the history.
func (a *attempt) recordSideEnd(res Result, summary runner.Summary) error {
	err := a.repo.Store.UpdateInvocationMeta(a.repo.ID, a.sandbox.ID, func(m *store.InvocationMeta) {
		m.Status, m.PID, m.PIDStarted = a.record.Status, 0, ""
		if !a.req.Side.continuesSession(*m) {
			summary.Session, summary.OfSession = "", false
		}
		addSpent(m, summary)
	})
	a.appendEndEvent(res)
	return err
}
