package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// program is the name under which a node finds git-agency, if it is not where this machine has it.
const program = "git-agency"

// extraTime is added to the time limit that the engine gets, so that the node ends the run first, with its work pushed.
const extraTime = 5 * time.Minute

// Submit submits the next run of an invocation to the engine of its platform: that of a new invocation, or what runs.Resume has
// recorded. If it fails, the run is recorded as failed, and its refs in the hub are deleted. If it is not known whether the engine has
// the job, the run goes on, and the next command asks.
//
//  1. Record that the run begins, and that this process submits it.
//  2. Push the job to the hub.
//  3. Submit it to the engine.
//  4. Record the id that the engine gave it.
//
// A process killed between 1 and 4 leaves a run of which the engine may have a job: it is found by its name.
func (c *Client) Submit(ctx context.Context, id string) error {
	before, err := runs.BeginJob(c.r, id)
	if err != nil {
		return err
	}
	err = c.submit(ctx, before)
	if err == nil {
		return nil
	}
	m := c.record(id)
	if !m.HasOpenJob() || fault.Is[*unknownSubmitError](err) { // the engine may have it
		return err
	}
	undone := context.WithoutCancel(ctx)
	cleanup := errors.Join(c.forgetHub(undone, m), c.removeEnvironment(id))
	failed := runs.JobEnd{Result: runs.Result{Status: store.StatusFailed, Reason: "it could not be submitted: " + err.Error(), ExitCode: runs.ExitSetup}}
	if context.Cause(ctx) != nil {
		failed.Status, failed.Reason, failed.ExitCode = store.StatusStopped, "it was stopped before it was submitted", runs.ExitStopped
	}
	return errors.Join(&fault.SetupError{ID: id, Err: err, Submitting: true}, cleanup, runs.EndJob(undone, c.r, id, failed, func(func()) {}))
}

// unknownSubmitError reports a submission of which it is not known whether the engine took it.
type unknownSubmitError struct{ err error }

func (e *unknownSubmitError) Error() string {
	return "it is not known whether the engine has the job: " + e.err.Error()
}
func (e *unknownSubmitError) Unwrap() error { return e.err }

// submit is Submit without the record of a failure. before is the record from before the run.
func (c *Client) submit(ctx context.Context, before store.InvocationMeta) error {
	id := before.InvocationID
	platform, err := c.r.Settings.Platform(before.Primitives.Platform)
	if err != nil {
		return err
	}
	platform = platform.WithImageOf(before.Primitives)
	driver, err := openDriver(platform)
	if err != nil {
		return err
	}
	name, err := c.r.Settings.Hub()
	if err != nil {
		return err
	}
	job, err := c.newJob(ctx, before)
	if err != nil {
		return err
	}
	job.Primitives = nodePrimitives(platform, job.Primitives)
	h, err := openHub(ctx, c.r, name, job.Base)
	if err == nil {
		err = h.CheckFullHistory(ctx)
	}
	if err != nil {
		return err
	}
	commit, err := job.Write(ctx, c.r.Git, core.ToolIdentity)
	if err != nil {
		return err
	}
	if err := c.r.Store.UpdateInvocationMeta(c.r.ID, id, func(m *store.InvocationMeta) {
		m.Hub, m.JobCommit = h.Name, commit
	}); err != nil {
		return err
	}
	if err := c.keepLateResult(ctx, h, before); err != nil {
		return err
	}
	if err := pushJob(ctx, h, id, commit, before.JobCommit); err != nil {
		return err
	}
	request, err := c.jobRequest(before, platform, h, commit, job)
	if err != nil {
		return err
	}
	jobID, err := driver.Submit(ctx, request)
	if rejected := (*engine.RejectedError)(nil); err != nil && !errors.As(err, &rejected) {
		if known, listErr := driver.List(context.WithoutCancel(ctx), []engine.Ref{{Name: request.Name, Dir: request.LogDir}}); listErr != nil {
			return &unknownSubmitError{errors.Join(err, listErr)}
		} else if len(known) > 0 { // it was taken, and the answer was lost
			jobID, err = known[0].ID, nil
		}
	}
	if err != nil {
		return explainRejected(err, platform, h)
	}
	err = c.r.Store.UpdateInvocationMeta(c.r.ID, id, func(m *store.InvocationMeta) {
		m.PlatformJob, m.PlatformState, m.PID, m.PIDStarted = jobID, store.PlatformQueued, 0, ""
	})
	if err != nil {
		return &unknownSubmitError{err}
	}
	return nil
}

// nodePrimitives returns the primitives of a run for the node. A container has the image of its software as its root file system.
func nodePrimitives(platform settings.Platform, prims store.Primitives) store.Primitives {
	if platform.HasOwnRoot() {
		prims.Software, prims.SoftwareImage = store.SoftwareHost, ""
	}
	return prims
}

// explainRejected adds to the error of a submission what to type if another machine may not see the hub.
func explainRejected(err error, platform settings.Platform, h *hub.Hub) error {
	rejected := (*engine.RejectedError)(nil)
	if errors.As(err, &rejected) && platform.HasOwnRoot() && platform.SSH != "" && h.Dir() != "" && strings.Contains(rejected.Detail, h.Dir()) {
		return fmt.Errorf("%w; name a repository that %s reaches: git config %s <ssh URL or remote>", err, platform.SSH, settings.HubKey)
	}
	return err
}

// pushJob pushes a job to the hub, in place of that of the run before.
func pushJob(ctx context.Context, h *hub.Hub, id, commit, last string) error {
	update := transport.RefUpdate{Ref: hub.JobRef(id), New: commit, Old: last}
	err := h.Update(ctx, update)
	if rejected := (*transport.RejectedError)(nil); !errors.As(err, &rejected) {
		return err
	}
	refs, listErr := h.Refs(ctx, id) // the user may have deleted it, or chosen another hub since
	if listErr != nil || refs[update.Ref] == update.Old {
		return errors.Join(err, listErr)
	}
	update.Old = refs[update.Ref]
	return h.Update(ctx, update)
}

// newJob returns what the run is given.
func (c *Client) newJob(ctx context.Context, m store.InvocationMeta) (hub.Job, error) {
	id := m.InvocationID
	job := hub.Job{
		Invocation: id, Name: m.InvocationName, Base: m.BaseCommit, Changed: m.FromSnapshot != "" || m.StartChanges != "", Platform: m.Primitives.Platform, Runner: m.Runner, Mode: m.Mode,
		Primitives: m.Primitives, Limits: m.Limits, Run: m.RunFields, Number: m.Runs + 1, Submitted: c.r.Now(),
	}
	limit, err := runs.RunTimeout(c.r, m)
	if err != nil {
		return job, err
	}
	if job.TimeoutMS = limit.Milliseconds(); limit < 0 {
		job.TimeoutMS = -1
	}
	if job.Task, err = readOptional(c.r.Store.TaskPath(c.r.ID, id)); err != nil {
		return job, err
	}
	if job.Answer, err = readOptional(c.r.Store.AnswerPath(c.r.ID, id)); err != nil {
		return job, err
	}
	if m.Runs > 0 || m.FromSnapshot != "" || m.StartChanges != "" { // else the sandbox is as its base
		taken, err := sandbox.Of(c.r, id).TakeSnapshot(ctx, snapshots.TakeRequest{})
		if err != nil {
			return job, err
		}
		job.State = taken.ID
	}
	job.Settings, err = c.jobSettings(m)
	return job, err
}

// readOptional reads a file that may not exist.
func readOptional(path string) ([]byte, error) {
	text, err := durable.ReadFile(path, runs.MaxTask)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// jobSettings returns the settings of the user that a run needs: the node has only those of its own user.
func (c *Client) jobSettings(m store.InvocationMeta) ([]hub.Setting, error) {
	s := unattended()
	for _, key := range []string{"user.name", "user.email"} {
		if value := c.r.Git.Config.Value(key); value != "" {
			s = append(s, hub.Setting{Key: key, Value: value})
		}
	}
	line, ignored, err := c.r.Settings.ShellCommand(settings.SetupKey)
	if err != nil {
		return nil, err
	}
	c.r.Settings.WarnIgnored(settings.SetupKey, ignored)
	if line != "" {
		s = append(s, hub.Setting{Key: settings.SetupKey, Value: line})
	}
	if command, set := c.r.Settings.RunnerCommands()[m.Runner]; set && m.Runner != "" {
		s = append(s, hub.Setting{Key: "agency." + m.Runner + ".command", Value: command})
	}
	names, err := c.r.Settings.PassedVariables()
	for _, name := range names {
		s = append(s, hub.Setting{Key: settings.PassedVariablesKey, Value: name})
	}
	return s, err
}

// unattended returns settings of runs during which nothing can be seen or answered.
func unattended() []hub.Setting {
	return []hub.Setting{{Key: settings.SnapshotEveryKey, Value: "0"}, {Key: settings.AskTimeoutKey, Value: "0"}}
}

// jobRequest returns the job for the engine.
func (c *Client) jobRequest(m store.InvocationMeta, platform settings.Platform, h *hub.Hub, commit string, job hub.Job) (engine.Job, error) {
	id := m.InvocationID
	environment, err := c.writeEnvironment(m)
	if err != nil {
		return engine.Job{}, err
	}
	request := newRequest(platform, h, commit, job, environment)
	request.Name = jobName(id, m.Runs+1)
	if platform.SSH == "" {
		request.LogDir = c.r.Store.InvocationDir(c.r.ID, id)
	}
	return request, nil
}

// newRequest returns a job for the engine, without a name, that executes the job of a commit in the hub. Its command line has no secret:
// engines keep those, and show them. environment is the file with the variables for the agent; empty for none.
func newRequest(platform settings.Platform, h *hub.Hub, commit string, job hub.Job, environment string) engine.Job {
	argv := []string{program}
	if own, err := os.Executable(); err == nil && platform.SSH == "" && filepath.Base(own) == program {
		argv[0] = own
	}
	argv = append(argv, "node", "--hub", hubAddress(h, platform), "--job", commit)
	if environment != "" {
		argv = append(argv, "--environment", environment)
	}
	request := engine.Job{Programs: []string{program}, Memory: job.Limits.Memory, Requeue: platform.Requeue}
	if platform.HasOwnRoot() {
		dir := nodePath(platform)
		argv = append(argv, "--exclusive-dir", "--dir", dir.Target)
		request.Paths = append(hubPaths(h), dir)
		if environment != "" && platform.SSH == "" {
			request.Paths = append(request.Paths, engine.Path{Source: environment, Target: environment})
		}
	} else if platform.Dir != "" {
		argv = append(argv, "--dir", platform.Dir)
	}
	request.Argv = append(argv, job.Invocation)
	if job.TimeoutMS > 0 {
		request.TimeLimit = time.Duration(job.TimeoutMS)*time.Millisecond + extraTime
	}
	return request
}

// nodeVolume is the volume in which containers keep repositories and sandboxes, and nodeVolumeDir its path in them.
const (
	nodeVolume    = "git-agency"
	nodeVolumeDir = "/var/lib/git-agency"
)

// nodePath returns the directory or volume in which containers keep repositories and sandboxes.
func nodePath(platform settings.Platform) engine.Path {
	if platform.Dir != "" {
		return engine.Path{Source: platform.Dir, Target: platform.Dir, Write: true}
	}
	return engine.Path{Source: nodeVolume, Target: nodeVolumeDir, Write: true}
}

// hubAddress returns what a node is told about where the hub is. A container sees no more of a repository than its git directory.
func hubAddress(h *hub.Hub, platform settings.Platform) string {
	if platform.HasOwnRoot() {
		return cmp.Or(h.Dir(), h.URL)
	}
	return h.URL
}

// hubPaths returns what a container needs to reach a hub by its path: the git directory, and those from which it borrows objects.
func hubPaths(h *hub.Hub) (paths []engine.Path) {
	dir := h.Dir()
	if dir == "" {
		return nil
	}
	paths = []engine.Path{{Source: dir, Target: dir, Write: true}}
	for _, objects := range (&git.Repo{CommonDir: dir}).Alternates() {
		if _, err := os.Stat(objects); !errors.Is(err, os.ErrNotExist) { // git ignores one that does not exist
			paths = append(paths, engine.Path{Source: objects, Target: objects})
		}
	}
	return paths
}

// environmentPath returns the path of the file with the variables that the agent of an invocation needs.
func (c *Client) environmentPath(id string) string {
	return filepath.Join(c.r.Store.InvocationDir(c.r.ID, id), "environment")
}

// writeEnvironment writes the variables that are meant for the agent to a file that only this user can read, and returns its path;
// empty if there are none. The file is removed when the run has ended.
func (c *Client) writeEnvironment(m store.InvocationMeta) (string, error) {
	variables, err := runs.AgentVariables(c.r, m.Runner)
	if err != nil || len(variables) == 0 {
		return "", err
	}
	slices.Sort(variables)
	path := c.environmentPath(m.InvocationID)
	return path, durable.WriteFile(path, []byte(strings.Join(variables, "\x00")+"\x00"), 0o600)
}

func (c *Client) removeEnvironment(id string) error {
	return durable.RemoveIfExists(c.environmentPath(id))
}
