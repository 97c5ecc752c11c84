// Package platform is the life of a run that a node executes, another machine or a container, on the machine of its user: it
// submits the job to the engine of the platform, asks that how the job is, stops it, follows its output, and imports the result
// into the sandbox.
//
// No process supervises such a run. The record says that it goes on; any command that asks for its state asks the engine and the
// hub, and records what it finds. A result in the hub is the truth about the end of a run. The engine only says which jobs are
// alive: it may report a wrong exit code, begin a job twice, or forget it.
package platform

import (
	"context"
	"strconv"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Client works on the runs of one repository. Its methods may be called at the same time; those that wait share their questions to
// the engines.
type Client struct {
	r *core.Repository

	mu      sync.Mutex
	results map[string]runs.Result     // of the runs that ended during this process
	waiting map[string][]chan struct{} // by invocation: closed after the next round
	polls   bool                       // a goroutine makes rounds
}

// New returns a client for the runs of a repository.
func New(r *core.Repository) *Client {
	return &Client{r: r, results: map[string]runs.Result{}, waiting: map[string][]chan struct{}{}}
}

// openEngine returns the driver of a platform and its settings.
func openEngine(r *core.Repository, name string) (engine.Driver, settings.Platform, error) {
	p, err := r.Settings.Platform(name)
	if err != nil {
		return nil, p, err
	}
	d, err := openDriver(p)
	return d, p, err
}

// openDriver returns the driver of a platform.
func openDriver(p settings.Platform) (engine.Driver, error) {
	d, err := engine.Open(p.Config)
	if err != nil {
		err = &fault.UnsupportedError{Primitive: "platform", Value: p.Name, Why: err.Error()}
	}
	return d, err
}

// openHub returns the hub of a name in a record or a setting.
func openHub(ctx context.Context, r *core.Repository, name, like string) (*hub.Hub, error) {
	h, err := hub.Open(ctx, r.Git, name, like)
	if err == nil {
		h.Lock = r.LockAndRecover
	}
	return h, err
}

// jobName returns the name of the job of a run. No other job ever has it.
func jobName(id string, run int) string {
	if run <= 1 {
		return "agency-" + id
	}
	return "agency-" + id + "-" + strconv.Itoa(run)
}

// ref returns the job of the last run of an invocation.
func ref(r *core.Repository, m store.InvocationMeta) engine.Ref {
	return engine.Ref{Name: jobName(m.InvocationID, m.Runs), ID: m.PlatformJob, Dir: r.Store.InvocationDir(r.ID, m.InvocationID)}
}

// record returns the record of an invocation as it is now.
func (c *Client) record(id string) store.InvocationMeta {
	return c.r.Store.Invocation(c.r.ID, id, nil).Record
}

// engineLabel returns the name of the engine of a platform for messages.
func (c *Client) engineLabel(platform string) string {
	if platform == settings.PlatformSlurm {
		return "Slurm"
	}
	if p, err := c.r.Settings.Platform(platform); err == nil && p.HasOwnRoot() {
		return p.ContainerClient()
	}
	return platform
}
