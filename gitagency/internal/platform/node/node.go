// Package node executes a run on a node, which is another machine than that of the user or a container: it fetches the job from
// the hub, makes a sandbox with the same walls, runs the agent in it with the same limits, and pushes the result to the hub. The
// engine that started it may start it again, also while the first attempt still works: of all attempts at a run, one result
// counts.
//
// It works in a repository of its own, which it keeps for the next job from the same hub, and never in one of the user's.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Request names the job to execute.
type Request struct {
	Hub          string // path or URL of the hub
	ID           string // id of the invocation
	Job          string // commit of the job
	Dir          string // directory for repositories and sandboxes; empty: in the user's cache directory
	ExclusiveDir bool   // use a directory below Dir that no other process has locked, since process ids mean nothing in other containers
	Environment  string // file with the variables that the agent needs, if the node can read it; empty for none
	Node         string // name of this machine
	Attempt      int    // number of the attempt at this run, from 1

	Options core.Options // of the repository; Dir is not used
	Force   <-chan struct{}

	Stdout, Stderr io.Writer // receive what the agent writes
}

// pushTimeout bounds the time in which the result is pushed, with all retries.
const pushTimeout = 10 * time.Minute

// rejectedTimeout bounds the time in which a result is pushed again that the hub has rejected: a process that was killed there may
// have left a lock.
const rejectedTimeout = time.Minute

// Run executes a job and pushes its result. It returns the exit code of the run; 0 if the run has a result already, or got one
// from another attempt meanwhile, so that no engine takes this one for failed. An error means that there is no result.
func Run(ctx context.Context, req Request) (exit int, err error) {
	w, err := open(ctx, req)
	if err != nil {
		return runs.ExitSetup, err
	}
	defer w.rootLock.Close() // without ExclusiveDir it is nil, and Close does nothing
	job, err := w.fetchJob(ctx)
	if err != nil {
		return runs.ExitSetup, err
	}
	if job == nil {
		return 0, nil
	}
	switch done, err := w.findPrevious(ctx, *job); {
	case err != nil:
		return runs.ExitSetup, err
	case done:
		return 0, nil
	}
	draft := w.execute(ctx, *job)
	pushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTimeout)
	defer cancel()
	if fenced, err := w.push(pushing, draft); err != nil {
		return runs.ExitSetup, fmt.Errorf("the result could not be pushed to %s: %w; the work is in %s", w.req.Hub, err, w.dataDir())
	} else if fenced {
		draft.Exit = 0
	}
	if err := w.removeSandbox(pushing); err != nil {
		w.warn("the sandbox could not be removed: %v", err)
	}
	return draft.Exit, nil
}

// work is one attempt at a run.
type work struct {
	req      Request
	root     string           // directory for this hub
	repo     *core.Repository // with the environment and the settings of this process
	hub      *hub.Hub
	previous string     // commit in the hub that the result replaces; empty for none
	replaced hub.Result // of that commit

	agentRepo *core.Repository // repo with the environment and the settings of the job; nil before the job is known
	sandboxID string           // sandbox of the run; empty before it exists

	rootLock *os.File // of root, with ExclusiveDir

	keepsMore bool // the sandbox has work that the result lacks

	mu       sync.Mutex
	warnings []string // for the result
}

func (w *work) warn(format string, args ...any) {
	if w.req.Options.Warn != nil {
		w.req.Options.Warn(fmt.Sprintf(format, args...))
	}
}

// fetchJob fetches the job; nil if it is not wanted any more: the user has discarded the invocation, or resumed it.
func (w *work) fetchJob(ctx context.Context) (*hub.Job, error) {
	known, err := w.repo.Git.Tip(ctx, baseRef)
	if err != nil {
		return nil, err
	}
	commit, err := w.hub.FetchJob(ctx, w.req.ID, known)
	if err != nil {
		return nil, fmt.Errorf("the job cannot be fetched from %s: %w", w.req.Hub, err)
	}
	if commit != w.req.Job {
		w.warn("job %s of %s is not in the hub any more; nothing is run", w.req.Job, w.req.ID)
		return nil, nil
	}
	job, err := hub.ReadJob(ctx, w.repo.Git, commit)
	if err != nil {
		return nil, err
	}
	if job.Invocation != w.req.ID {
		return nil, fmt.Errorf("job %s is that of %s", commit, job.Invocation)
	}
	if job.Probe {
		return &job, nil
	}
	return &job, w.keepBase(ctx, job.Base, known)
}

// baseRef keeps the base of the last job, so that the next fetch transfers only what is new.
const baseRef = "refs/agency/node/base"

// keepBase moves baseRef. That another attempt has moved it meanwhile does not matter.
func (w *work) keepBase(ctx context.Context, base, known string) error {
	if base == known {
		return nil
	}
	old := known
	if old == "" {
		old = object.FormatOf(base).ZeroID()
	}
	if err := w.repo.Git.MoveRef(ctx, baseRef, base, old, "agency: node"); err != nil && !git.ChangedNothing(err) {
		return err
	}
	return nil
}

// findPrevious finds the result that is in the hub already. done reports that it is that of this run, and final.
func (w *work) findPrevious(ctx context.Context, job hub.Job) (done bool, err error) {
	commit, err := w.hub.FetchResult(ctx, job.Invocation, job.Base)
	if err != nil || commit == "" {
		w.previous, w.replaced = "", hub.Result{}
		return false, err
	}
	found, err := hub.ReadResult(ctx, w.repo.Git, commit, job.Invocation)
	if err != nil {
		return false, err
	}
	w.previous, w.replaced = commit, found
	return found.Number == job.Number && found.IsFinal() || found.Number > job.Number, nil
}

// push writes the result and pushes it, unless another attempt was faster: then it is fenced. It retries as long as the hub cannot
// be reached.
func (w *work) push(ctx context.Context, draft hub.Draft) (fenced bool, err error) {
	if wanted, err := w.isWanted(ctx, draft); err == nil && !wanted {
		return true, nil
	} // else the push reports the error
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		if w.previous != "" && !w.replaced.IsReplacedBy(draft.Result) {
			return true, nil
		}
		draft.Previous = ""
		if w.replaced.Number == draft.Number {
			draft.Previous = w.previous
		}
		commit, err := draft.Write(ctx, w.repo.Git, core.ToolIdentity)
		if err != nil {
			return false, err
		}
		err = w.hub.Update(ctx, transport.RefUpdate{Ref: hub.ResultRef(draft.Invocation), New: commit, Old: w.previous})
		if err == nil {
			return false, nil
		}
		before := w.previous
		_, lookErr := w.findPrevious(ctx, hub.Job{Invocation: draft.Invocation, Base: draft.Base, Number: draft.Number})
		if rejected := (*transport.RejectedError)(nil); errors.As(err, &rejected) && lookErr == nil {
			if w.previous == commit { // the answer to the push was lost
				return false, nil
			}
			if w.previous != before {
				continue
			}
			if time.Since(began) > rejectedTimeout { // no other attempt is the reason
				return false, err
			}
		}
		w.warn("the result could not be pushed, and will be again: %v", err)
		select {
		case <-ctx.Done():
			return false, errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// isWanted reports whether the user still waits for the result of the run: a discard or a resume has removed the job.
func (w *work) isWanted(ctx context.Context, draft hub.Draft) (bool, error) {
	refs, err := w.hub.Refs(ctx, draft.Invocation)
	return refs[hub.JobRef(draft.Invocation)] == w.req.Job, err
}

// removeSandbox removes the sandbox of the run, whose work is in the hub now. What its result lacks is kept as that of any discarded
// sandbox, or in the sandbox itself.
func (w *work) removeSandbox(ctx context.Context) error {
	switch {
	case w.sandboxID == "":
		return nil
	case w.keepsMore:
		_, err := discard.Run(ctx, w.repo, discard.Request{Query: w.sandboxID})
		return err
	}
	return w.remove(ctx, w.sandboxID)
}

// newDraft returns the result of a run that has not begun.
func (w *work) newDraft(job hub.Job) hub.Draft {
	now := w.repo.Now()
	return hub.Draft{
		Result: hub.Result{
			Invocation: job.Invocation, Number: job.Number, Node: w.req.Node, Attempt: w.req.Attempt, Exit: runs.ExitSetup, Reason: store.StatusFailed,
			Record: hub.Record{
				Status: store.StatusFailed, BeganAt: now, EndedAt: now, Isolation: job.Primitives.Isolation,
				Git: w.repo.Git.Version.String(), Tool: w.req.Options.Version,
			},
		},
		State: job.State, Start: job.Base, Base: job.Base, Branch: core.SandboxRef(job.Invocation), AsBranch: core.SandboxRef(job.Invocation), Output: map[string][]byte{},
	}
}

// maxLive bounds what each stream of the agent adds to the output of the job, which an engine keeps in a file that nothing bounds. The
// result has the end of the output.
const maxLive = 16 << 20

// firstBytes passes on the begin of a stream, as long as it can be written: without a reader, the run goes on.
type firstBytes struct {
	to   io.Writer
	size int64
}

func (o *firstBytes) Write(p []byte) (int, error) {
	if o.to != nil && o.size < maxLive {
		if _, err := o.to.Write(p[:min(int64(len(p)), maxLive-o.size)]); err != nil {
			o.to = nil
		}
	}
	o.size += int64(len(p))
	return len(p), nil
}

// readLog returns what is kept of a log: its older part and the current one, at most so many bytes of each; nil if there is neither.
func readLog(path string, most int64) ([]byte, error) {
	var all []byte
	for _, part := range []string{store.RotatedPath(path), path} {
		f, err := os.Open(part)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return all, err
		}
		text, err := io.ReadAll(io.LimitReader(f, most))
		if err = errors.Join(err, f.Close()); err != nil {
			return all, err
		}
		all = append(all, text...)
	}
	return all, nil
}
