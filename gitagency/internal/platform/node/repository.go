package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// worktreeName is the name of the integration worktree in which sandboxes start. It is empty: each sandbox has a commit of its
// own to start from.
const worktreeName = "node"

// defaultDir returns the directory for repositories and sandboxes. It has the name of the machine, because a home directory may be
// shared by several, of which none knows the processes and locks of the others.
func defaultDir(env []string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	cache := proc.Getenv(env, "XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		home := proc.Getenv(env, "HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("neither XDG_CACHE_HOME nor HOME names a directory")
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "agency", "nodes", host), nil
}

// open opens the repository for jobs from a hub, and makes it first if there is none.
func open(ctx context.Context, req Request) (w *work, err error) {
	if !object.IsOID(req.Job) {
		return nil, &fault.InvalidError{What: "job", Value: req.Job, Want: "the full id of a commit"}
	}
	w = &work{req: req, root: req.Dir}
	if w.root == "" {
		if w.root, err = defaultDir(req.Options.Env); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(req.Hub + "\x00" + string(object.FormatOf(req.Job))))
	w.root = filepath.Join(w.root, hex.EncodeToString(sum[:8]))
	locked, err := w.lockRoot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !req.ExclusiveDir || err != nil {
			err = errors.Join(err, locked.Close())
		}
	}()
	if req.ExclusiveDir {
		w.rootLock = locked
	}
	if err := w.makeRepository(object.FormatOf(req.Job)); err != nil {
		return nil, err
	}
	if w.repo, err = w.openRepository(ctx, git.WithoutRepoVariables(req.Options.Env)); err != nil {
		return nil, err
	}
	if err := w.makeWorktree(ctx); err != nil {
		return nil, err
	}
	w.removeAbandoned(ctx)
	w.hub, err = hub.Open(ctx, w.repo.Git, req.Hub, req.Job)
	return w, err
}

// maxRoots bounds the search for a directory that no other process uses.
const maxRoots = 1000

// lockRoot makes the directory for the hub, and locks it. With ExclusiveDir, it takes the first one that is free.
func (w *work) lockRoot(ctx context.Context) (*os.File, error) {
	root := w.root
	for n := 1; ; n++ {
		wait := time.Duration(-1)
		if w.req.ExclusiveDir {
			w.root, wait = fmt.Sprintf("%s-%d", root, n), 0
		}
		if err := os.MkdirAll(w.root, 0o700); err != nil {
			return nil, err
		}
		locked, err := lock.AcquireDirExclusive(ctx, w.root, wait)
		if !w.req.ExclusiveDir || !fault.Is[*lock.TimeoutError](err) || n == maxRoots {
			return locked, err
		}
	}
}

func (w *work) gitDir() string  { return filepath.Join(w.root, "repository.git") }
func (w *work) dataDir() string { return filepath.Join(w.root, "data") }

// makeRepository makes the repository, all of it or nothing.
func (w *work) makeRepository(format object.Format) error {
	if _, err := os.Lstat(w.gitDir()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := filepath.Join(w.root, durable.TempPrefix+"repository")
	if err := errors.Join(os.RemoveAll(temp), os.Mkdir(temp, 0o700)); err != nil {
		return err
	}
	if err := git.InitBareAs(temp, format); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return os.Rename(temp, w.gitDir())
}

// openRepository opens the repository with an environment. Its records are beside it.
func (w *work) openRepository(ctx context.Context, env []string) (*core.Repository, error) {
	opts := w.req.Options
	opts.Dir = w.gitDir()
	opts.Env = append(slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "AGENCY_DATA_DIR=")
	}), "AGENCY_DATA_DIR="+w.dataDir())
	return core.Open(ctx, opts)
}

// makeWorktree makes the integration worktree, unless there is one.
func (w *work) makeWorktree(ctx context.Context) error {
	_, err := w.repo.Worktree(worktreeName)
	if err == nil || !fault.Is[*fault.NotFoundError](err) {
		return err
	}
	format := object.FormatOf(w.req.Job)
	root, err := hub.WriteEmptyCommit(ctx, w.repo.Git, format, core.ToolIdentity)
	if err != nil {
		return err
	}
	_, err = w.repo.CreateWorktree(ctx, core.CreateWorktreeRequest{Name: worktreeName, From: root})
	return err
}

// endedAge is the time after which a sandbox whose run has ended is taken for abandoned: until then its process may be about to
// push the result.
const endedAge = time.Hour

// removeAbandoned discards the sandboxes of processes that were killed. Their work is kept as that of any discarded sandbox.
func (w *work) removeAbandoned(ctx context.Context) {
	all, err := w.repo.Invocations(core.ListRequest{})
	if err != nil {
		w.warn("%v", err)
		return
	}
	for _, inv := range all {
		if !w.req.ExclusiveDir && w.isInUse(inv) {
			continue
		}
		if _, err := discard.Run(ctx, w.repo, discard.Request{Query: inv.ID}); err != nil {
			w.warn("sandbox %s of a process that was killed: %v", inv.ID, err)
		}
	}
}

// isInUse reports whether a process may work with a sandbox.
func (w *work) isInUse(inv core.Invocation) bool {
	age := func(since time.Time) time.Duration { return w.repo.Now().Sub(since) }
	switch {
	case inv.IsSupervised():
		return true
	case !inv.FinishedAt.IsZero():
		return age(inv.FinishedAt) < endedAge
	}
	return inv.Entry.Record.PID == 0 && age(inv.StartedAt) < endedAge
}

// remove removes a sandbox and all that belongs to it.
func (w *work) remove(ctx context.Context, id string) error {
	repo, unlock, err := w.repo.LockAndRecover(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return discard.RemoveTemporary(ctx, w.repo, repo, id)
}

// readEnvironment reads the variables for the agent, each ended by a NUL. A file that does not exist here is no error: the node has
// its own environment.
func readEnvironment(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	const most = 1 << 20
	text, err := durable.ReadFile(path, most)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("variables of the agent: %w", err)
	}
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == 0 }), nil
}

// recordOf returns the record of the sandbox of the run.
func (w *work) recordOf(id string) store.InvocationMeta {
	return w.repo.Store.Invocation(w.repo.ID, id, nil).Record
}
