package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// CheckoutWorkersConfig makes git write files on all cores, unless the user configured checkout.workers.
func (r *Repo) CheckoutWorkersConfig() []string {
	if _, set := r.Config["checkout.workers"]; set {
		return nil
	}
	return []string{"-c", "checkout.workers=0"}
}

// Error is the failure of a git that ran and exited with a status other than 0.
type Error struct {
	Args     []string
	ExitCode int
	Stderr   string
}

func (e *Error) Error() string {
	if msg := StderrReason(e.Stderr); msg != "" {
		return fmt.Sprintf("git %s: %s", e.Args[0], msg)
	}
	return fmt.Sprintf("git %s: exit status %d", e.Args[0], e.ExitCode)
}

// NoRepositoryError reports that git found no repository. Its text is git's own.
type NoRepositoryError struct {
	GitDir string // git directory that the .git file of the worktree names, if that does not exist
	Err    error
}

func (e *NoRepositoryError) Error() string {
	var g *Error
	if errors.As(e.Err, &g) && g.Stderr != "" {
		return strings.TrimPrefix(strings.TrimSpace(g.Stderr), "fatal: ")
	}
	return e.Err.Error()
}

func (e *NoRepositoryError) Unwrap() error { return e.Err }

// StderrReason extracts the "fatal: " and "error: " lines from git's standard error, without these prefixes: the
// caller adds its own. Without such a line it returns all of standard error.
func StderrReason(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	var reasons []string
	for line := range strings.Lines(stderr) {
		for _, p := range []string{"fatal: ", "error: "} {
			if reason, ok := strings.CutPrefix(strings.TrimSpace(line), p); ok {
				reasons = append(reasons, reason)
			}
		}
	}
	if len(reasons) == 0 {
		return stderr
	}
	return strings.Join(reasons, "; ")
}

// Runner holds the directory, environment and standard streams of one git process.
type Runner struct {
	Dir         string
	Env         []string
	Inherit     []*os.File
	stdin       string
	stdinReader io.Reader // takes precedence over stdin
	stdout      io.Writer // receives standard output instead of the returned bytes
	reading     readlimit.Reading
	mounted     *MountedTree // mounted for git alone; nil: none
}

// Output runs git with args and returns its standard output. An exit status other than 0 is an *Error.
func (r Runner) Output(ctx context.Context, args ...string) ([]byte, error) {
	return r.OutputWithGlobals(ctx, nil, args)
}

// OutputWithGlobals is Output with options before the subcommand.
func (r Runner) OutputWithGlobals(ctx context.Context, global, args []string) ([]byte, error) {
	out, _, err := r.OutputAndStderr(ctx, global, args)
	return out, err
}

// OutputAndStderr is OutputWithGlobals that also returns standard error.
func (r Runner) OutputAndStderr(ctx context.Context, global, args []string) (stdout, stderr []byte, err error) {
	c := proc.Command{Argv: slices.Concat([]string{"git"}, global, args), Dir: r.Dir, Env: r.Env, Inherit: r.Inherit, Stdout: r.stdout}
	if r.stdin != "" {
		c.Stdin = strings.NewReader(r.stdin)
	}
	if r.stdinReader != nil {
		c.Stdin = r.stdinReader
	}
	if r.mounted != nil {
		mount, err := r.mounted.Clone(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("git %s: %w", args[0], &proc.NotStartedError{Err: err})
		}
		defer mount.Close()
		c.Mount = &proc.Mount{File: mount, Path: r.mounted.Path}
	}
	res, err := r.reading.Run(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	if res.ExitCode != 0 {
		err = &Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return res.Stdout, res.Stderr, err
}

// ExitedWith reports whether git ran and exited with one of these codes.
func ExitedWith(err error, codes ...int) bool {
	var g *Error
	return errors.As(err, &g) && slices.Contains(codes, g.ExitCode)
}

// ChangedNothing reports whether err proves that git changed nothing: it exited with a status up to 128, or was never
// started. A git killed by a signal may have changed anything.
func ChangedNothing(err error) bool {
	var g *Error
	var never *proc.NotStartedError
	return errors.As(err, &g) && g.ExitCode <= 128 || errors.As(err, &never)
}

// RunOptions says on which git directory and worktree a git runs, and with what configuration, environment and input.
// The paths are always given explicitly: a .git file in the worktree could have been written by an agent. The zero
// value runs on the common directory without a worktree.
type RunOptions struct {
	GitDir      string // default: the common dir
	WorkTree    string
	Mounted     *MountedTree // what is mounted at WorkTree for this git alone; nil: nothing
	Config      []string     // more -c options
	Env         []string
	Stdin       string
	stdinReader io.Reader // takes precedence over Stdin
	Stdout      io.Writer
	LazyFetch   bool // git and Git LFS may fetch missing objects, as in a partial clone

	NoFsync bool // the caller makes the written files durable later

	Reading readlimit.Reading // limits of a git that reads data of an agent
}

// RunRead runs a git that only reads, without optional locks.
func (r *Repo) RunRead(ctx context.Context, p RunOptions, args ...string) ([]byte, error) {
	p.Env = append(p.Env, "GIT_OPTIONAL_LOCKS=0")
	return r.RunnerFor(p, nil).OutputWithGlobals(ctx, r.GlobalArgs(p), args)
}

// RunWrite runs a git that writes to the repository.
func (r *Repo) RunWrite(ctx context.Context, p RunOptions, args ...string) ([]byte, error) {
	if r.dryRunDir == "" && !p.NoFsync { // a dry run's files are deleted again
		p.Config = slices.Concat(FsyncArgs, p.Config)
	}
	inherit := r.Inherit
	if p.Reading.Walls != nil { // it writes nothing that the lock protects, and must not release it
		inherit = nil
	}
	return r.RunnerFor(p, inherit).OutputWithGlobals(ctx, r.GlobalArgs(p), args)
}

// RunnerFor returns the runner for p. Without a worktree git runs in the common directory.
func (r *Repo) RunnerFor(p RunOptions, inherit []*os.File) Runner {
	dir := r.CommonDir
	if p.WorkTree != "" {
		dir = p.WorkTree
	}
	env := p.Reading.Environment(r.Env, p.GitDir)
	if !p.LazyFetch {
		env = slices.Concat(env, NoLazyFetchEnv)
	}
	return Runner{Dir: dir, Env: slices.Concat(env, r.configEnv, p.Env), Inherit: inherit, stdin: p.Stdin, stdinReader: p.stdinReader, stdout: p.Stdout, reading: p.Reading, mounted: p.Mounted}
}

// GlobalArgs returns the options of git that come before the subcommand.
func (r *Repo) GlobalArgs(p RunOptions) []string {
	gitDir := r.CommonDir
	if p.GitDir != "" {
		gitDir = p.GitDir
	}
	global := []string{"--git-dir=" + gitDir}
	if p.WorkTree != "" {
		global = append(global, "--work-tree="+p.WorkTree)
	}
	if !p.LazyFetch {
		global = append(global, NoLFSServerArgs...)
	}
	return slices.Concat(global, NoSideEffectArgs, p.Config)
}

// NoLazyFetchEnv keeps git from fetching missing objects: the remote and the program to fetch with are named in a
// configuration file that an agent without walls could have written. A git that does not know GIT_NO_LAZY_FETCH
// starts a fetch, which may then use no protocol.
var NoLazyFetchEnv = []string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", KeepLFSPointersEnv}

// KeepLFSPointersEnv lets Git LFS write the pointer of an object that it cannot download, and not fail. GIT_LFS_SKIP_SMUDGE
// would also leave pointers of objects that it has.
const KeepLFSPointersEnv = "GIT_LFS_SKIP_DOWNLOAD_ERRORS=1"

// NoLFSServerArgs keep Git LFS from the server that .lfsconfig names: a file of the tree, which an agent may have written,
// would otherwise decide where the user's credentials go.
var NoLFSServerArgs = []string{"-c", "lfs.url=file:///dev/null/none"}

// NoSideEffectArgs keeps git from starting hooks, gc or a file system monitor during a transaction, and makes it wait
// some seconds for ref locks that other git processes hold.
var NoSideEffectArgs = []string{
	"-c", "core.hooksPath=/dev/null",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "core.fsmonitor=false",
	"-c", "submodule.recurse=false",
	"-c", "core.filesRefLockTimeout=5000",
	"-c", "core.packedRefsTimeout=10000",
	"-c", "advice.detachedHead=false",
}

// FsyncArgs makes git fsync the objects and refs it writes before anything else relies on them.
var FsyncArgs = []string{"-c", "core.fsync=committed,reference", "-c", "core.fsyncMethod=batch"}
