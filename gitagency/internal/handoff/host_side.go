package handoff

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// Inside runs our scripts where a sandbox's git directory is used: behind its walls, or, if it is a clone without walls, restricted
// as far as the kernel can.
type Inside interface {
	Run(ctx context.Context, t proc.Task) (proc.TaskResult, error)
	// IsSoleUser reports whether no other command runs there.
	IsSoleUser() bool
}

// OpenOutside returns the exchange with the git directory in the tree of a sandbox that is a clone, and where its scripts run. A
// person works with that directory, and so do commands if the sandbox has no walls.
func OpenOutside(r *core.Repository, id string) (*Exchange, Inside, error) {
	e := NewOf(r, id, r.CloneGitDir(id))
	side := newHostSide(r, id)
	e.environment = side.environment
	return e, side, e.loadState()
}

// hostSide runs scripts on the git directory of a clone outside of any walls. An agent may have written its settings, hooks and objects,
// so the scripts run as a reader does: they can read the system and the objects of the repository, and change that directory
// alone, as far as the kernel has Landlock and seccomp.
type hostSide struct {
	repo   *core.Repository
	id     string
	gitDir string
	tree   string
}

func newHostSide(r *core.Repository, id string) *hostSide {
	return &hostSide{repo: r, id: id, gitDir: r.CloneGitDir(id), tree: r.Store.SandboxTreePath(r.ID, id)}
}

// IsSoleUser is true: no lock file of this git directory is visible longer than it exists.
func (h *hostSide) IsSoleUser() bool { return true }

// reading returns the limits and walls of the scripts.
func (h *hostSide) reading() readlimit.Reading {
	g := h.repo.Git
	reading := readlimit.Reading{Limits: g.ReadLimits, What: "the commits of sandbox " + h.id}
	if program, err := proc.LookPath(g.Env, "git"); err == nil { // else the script fails too
		reading.Walls = readlimit.NewWalls(program, g.Env, g.ReadableObjects(), []string{h.gitDir})
	}
	return reading
}

// environment returns the environment of the scripts: no setting of the user's, no hook and no program of the clone's settings.
func (h *hostSide) environment() []string {
	env := h.reading().Environment(h.repo.Git.Env, h.gitDir)
	env = slices.Concat(env, git.NoLazyFetchEnv, []string{
		"GIT_DIR=" + h.gitDir, "GIT_WORK_TREE=" + h.tree, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", core.InvocationVariable + "=" + h.id,
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/dev/null", "GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false",
	})
	return env
}

// Run runs a script.
func (h *hostSide) Run(ctx context.Context, t proc.Task) (proc.TaskResult, error) {
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.Timeout, proc.ErrTimeout)
		defer cancel()
	}
	res, err := h.reading().Run(ctx, proc.Command{Argv: t.Argv, Dir: filepath.Dir(h.gitDir), Env: t.Env, Stdin: t.Stdin, Stdout: t.Stdout, Grace: t.Grace})
	if _, writeErr := t.Stderr.Write(res.Stderr); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	return proc.TaskResult{ExitCode: res.ExitCode}, err
}

// CopyCloneInside makes the git directory of a new clone that its commands use behind walls, as a copy of the one in its tree.
func CopyCloneInside(r *core.Repository, id string) error {
	inner := r.InnerCloneDir(id)
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	return copyRegularFiles(r.CloneGitDir(id), inner)
}

// The places of the git directories of sandboxes, for messages.
const (
	placeInside  = "behind the walls"
	PlaceOutside = "in the clone"
)

// Place says in which git directory the exchange finds the sandbox's state, for messages.
func (e *Exchange) Place() string {
	if e.isOutside() {
		return PlaceOutside
	}
	return placeInside
}

// isOutside reports whether the exchange is with the git directory in the tree of a clone.
func (e *Exchange) isOutside() bool { return e.upper == e.repo.CloneGitDir(e.id) }
