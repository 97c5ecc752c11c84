// Package runs creates the sandbox of a run, executes the agent in it, keeps its output, records how it ended, and stops or
// resumes it. A run is an agent at work in a sandbox, from its task to its status.
//
// One process supervises a run, in the foreground or detached, and writes its status. No other process has to exist:
// package core corrects the status that a killed process left, when it reads the record. The output of an agent is
// untrusted data.
package runs

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/preflight"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Request describes a run to create.
type Request struct {
	Start       creation.Request // the sandbox; its Runner is the agent
	Argv        []string         // command line to run instead of an agent
	Task        []byte           // nil: none
	Interactive bool             // run the agent's own program on a terminal
	Timeout     time.Duration    // zero: agency.runTimeout; negative: none
	CommitAll   bool             // commit what the agent leaves uncommitted
	Budget      store.Budget     // what the agent may spend
}

// MaxTask bounds the size of a task, which is kept in memory.
const MaxTask = 16 << 20

// Create makes the sandboxes of runs and records their tasks. It runs nothing in them. If a preflight check of one of them
// fails, nothing is created. The invocations that are returned with an error were created.
func Create(ctx context.Context, r *core.Repository, reqs []Request) (created []core.Invocation, err error) {
	if err := r.Settings.CheckRun(); err != nil {
		return nil, err
	}
	starts := make([]creation.Request, len(reqs))
	report := preflight.Report{OK: true}
	for i, req := range reqs {
		if starts[i], err = req.plan(r); err != nil {
			return nil, err
		}
		if i > 0 && starts[i].Runner == starts[i-1].Runner { // several runs of one command line differ only in their agents
			continue
		}
		of, err := preflight.Run(ctx, r, preflight.Request{Start: starts[i], Argv: req.Argv, Headless: !req.Interactive})
		if err != nil {
			return nil, err
		}
		report.Add(of)
	}
	if err := report.Err(); err != nil {
		return nil, err
	}
	once := warnOnce(r)
	for _, start := range starts {
		warnUncounted(once, start.Runner, start.Run.Budget)
		inv, err := creation.Start(ctx, once, start)
		if err != nil {
			return created, err
		}
		created = append(created, inv)
	}
	return created, nil
}

// warnOnce returns the repository with warnings that are not repeated: several sandboxes of one command line have the same.
func warnOnce(r *core.Repository) *core.Repository {
	var mutex sync.Mutex
	given := map[string]bool{}
	return r.WithWarn(func(message string) {
		mutex.Lock()
		defer mutex.Unlock()
		if !given[message] {
			given[message] = true
			r.Warn("%s", message)
		}
	})
}

// plan checks a request and returns that for its sandbox.
func (req Request) plan(r *core.Repository) (creation.Request, error) {
	start := req.Start
	if err := req.check(r); err != nil {
		return start, err
	}
	id, err := NewSessionID()
	if err != nil {
		return start, err
	}
	start.Mode = store.ModeHeadless
	if req.Interactive {
		start.Mode = store.ModeHeaded
	}
	start.Task = req.Task
	start.Run = store.RunFields{
		Task: firstLine(string(req.Task)), SessionID: id, Command: req.Argv, RunTimeoutMS: milliseconds(req.Timeout), CommitAll: req.CommitAll, Budget: req.Budget,
	}
	if req.Task != nil {
		start.Run.ResumeWith = store.ResumeWithTask
	}
	if spec, known := findSpec(r, start.Runner); known && spec.Hosts != nil {
		start.Primitives.Outputs, err = addHosts(r, start, spec.Hosts(r.Opts.Env))
	}
	return start, err
}

func (req Request) check(r *core.Repository) error {
	switch {
	case len(req.Argv) == 0 && req.Start.Runner == "":
		return &fault.InvalidError{What: "run", Want: "an agent (--runner) or a command (after --)"}
	case len(req.Argv) > 0 && req.Start.Runner != "":
		return &fault.InvalidError{What: "run", Value: req.Start.Runner, Want: "either an agent (--runner) or a command (after --)"}
	case len(req.Task) > MaxTask:
		return &fault.InvalidError{What: "task", Value: fmt.Sprintf("of %d bytes", len(req.Task)), Want: fmt.Sprintf("at most %d MiB", MaxTask>>20)}
	case req.Budget.IsInvalid():
		return invalidBudget()
	case req.Interactive && req.Task != nil:
		return &fault.InvalidError{What: "run", Want: "no task for an interactive agent"}
	}
	if req.Start.Runner == "" {
		return nil
	}
	_, known := findSpec(r, req.Start.Runner)
	_, configured := r.Settings.RunnerCommands()[req.Start.Runner]
	switch {
	case !known && !configured:
		return creation.UnknownRunnerError(req.Start.Runner, runnable(r))
	case known && !req.Interactive && req.Task == nil:
		return &fault.InvalidError{What: "run", Value: req.Start.Runner, Want: "a task, with -p, --task-file or -"}
	}
	return nil
}

// runnable lists the agents that can be run, in alphabetical order.
func runnable(r *core.Repository) []string {
	names := append(runner.SpecNames(), slices.Collect(maps.Keys(r.Settings.RunnerCommands()))...)
	slices.Sort(names)
	return slices.Compact(names)
}

// findSpec returns what is known about an agent, unless the user configured a command for it.
func findSpec(r *core.Repository, name string) (runner.Spec, bool) {
	if _, configured := r.Settings.RunnerCommands()[name]; configured {
		return runner.Spec{}, false
	}
	return runner.FindSpec(name)
}

// addHosts adds the hosts that an agent needs to the outputs of its sandbox, if those are a list of hosts.
func addHosts(r *core.Repository, start creation.Request, hosts []string) (string, error) {
	chosen, err := r.Settings.ChoosePrimitives(start.Primitives, start.Profile)
	if err != nil {
		return "", err
	}
	list, some := strings.CutPrefix(chosen.Outputs, settings.HostsPrefix)
	if !some {
		return start.Primitives.Outputs, nil
	}
	named := strings.Split(list, ",")
	for _, host := range hosts {
		if !slices.Contains(named, host) {
			named = append(named, host)
		}
	}
	return settings.HostsPrefix + strings.Join(named, ","), nil
}

// NewSessionID returns a random UUID (RFC 9562, version 4).
func NewSessionID() (string, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), nil
}

// firstLine returns the first line of a text that is not blank, shortened for a record.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return quote.Shorten(strings.TrimSpace(line), 200)
}

// timeout returns the limit of a run. An interactive agent has none unless one was given.
func timeout(r *core.Repository, m store.InvocationMeta, interactive bool) (time.Duration, error) {
	switch {
	case m.RunTimeoutMS != 0:
		return time.Duration(m.RunTimeoutMS) * time.Millisecond, nil
	case interactive:
		return -1, nil
	}
	return r.Settings.RunTimeout()
}

// milliseconds returns a time limit as records have it: -1 for none, and never 0 for one that was given.
func milliseconds(limit time.Duration) int64 {
	if limit < 0 {
		return -1
	}
	return int64((limit + time.Millisecond - 1) / time.Millisecond)
}
