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
)

// Error is a git that ran and failed.
type Error struct {
	Args     []string
	ExitCode int
	Stderr   string
}

func (e *Error) Error() string {
	if msg := lastWords(e.Stderr); msg != "" {
		return fmt.Sprintf("git %s: %s", e.Args[0], msg)
	}
	return fmt.Sprintf("git %s: exit status %d", e.Args[0], e.ExitCode)
}

// NoRepositoryError is git's answer that there is no repository here, in git's own words.
type NoRepositoryError struct{ Err error }

func (e *NoRepositoryError) Error() string {
	var g *Error
	if errors.As(e.Err, &g) && g.Stderr != "" {
		return strings.TrimPrefix(strings.TrimSpace(g.Stderr), "fatal: ")
	}
	return e.Err.Error()
}

func (e *NoRepositoryError) Unwrap() error { return e.Err }

// lastWords is what git gave as its reason, without its "fatal: " and the like: the caller adds its
// own. Without such a line it is everything git said.
func lastWords(stderr string) string {
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

// runner is where and how one git runs.
type runner struct {
	dir     string
	env     []string
	inherit []*os.File
	stdin   string
	input   io.Reader // what it reads instead of that
	stdout  io.Writer // gets the output instead of who asked
}

// git runs git with args and returns its standard output. An exit status other than 0 is an *Error.
func (r runner) git(ctx context.Context, args ...string) ([]byte, error) {
	return r.run(ctx, nil, args)
}

// run is git with options that come before the subcommand.
func (r runner) run(ctx context.Context, global, args []string) ([]byte, error) {
	out, _, err := r.both(ctx, global, args)
	return out, err
}

// both is run that also returns what git wrote to standard error.
func (r runner) both(ctx context.Context, global, args []string) (stdout, stderr []byte, err error) {
	c := proc.Command{Argv: slices.Concat([]string{"git"}, global, args), Dir: r.dir, Env: r.env, Inherit: r.inherit, Stdout: r.stdout}
	if r.stdin != "" {
		c.Stdin = strings.NewReader(r.stdin)
	}
	if r.input != nil {
		c.Stdin = r.input
	}
	res, err := proc.Run(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	if res.ExitCode != 0 {
		err = &Error{Args: args, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return res.Stdout, res.Stderr, err
}

// exitedWith reports whether git ran and ended with one of these codes.
func exitedWith(err error, codes ...int) bool {
	var g *Error
	return errors.As(err, &g) && slices.Contains(codes, g.ExitCode)
}

// Refused reports that git changed nothing: it said no, or never ran. One that was killed may have
// changed anything.
func Refused(err error) bool {
	var g *Error
	var never *proc.NotStartedError
	return errors.As(err, &g) && g.ExitCode <= 128 || errors.As(err, &never)
}

// place is a worktree named by hand, never by a .git file that somebody in it could have written.
// Its zero value is the repository itself.
type place struct {
	gitDir string // default: the common dir
	tree   string
	config []string // further -c settings
	env    []string
	stdin  string
	input  io.Reader // instead of that
	stdout io.Writer
	fetch  bool // objects that are not here may be fetched, as in a partial clone

	lightly bool // what is written need not last yet: somebody else sees to that
}

// read asks the repository something and takes no lock for it.
func (r *Repo) read(ctx context.Context, p place, args ...string) ([]byte, error) {
	p.env = append(p.env, "GIT_OPTIONAL_LOCKS=0")
	return r.at(p, nil).run(ctx, r.globals(p), args)
}

// change runs a git that writes to the repository.
func (r *Repo) change(ctx context.Context, p place, args ...string) ([]byte, error) {
	if r.rehearsal == "" && !p.lightly { // what goes away again need not last
		p.config = slices.Concat(durably, p.config)
	}
	return r.at(p, r.inherit).run(ctx, r.globals(p), args)
}

func (r *Repo) at(p place, inherit []*os.File) runner {
	dir := r.CommonDir
	if p.tree != "" {
		dir = p.tree
	}
	env := r.env
	if !p.fetch {
		env = slices.Concat(env, alone)
	}
	return runner{dir: dir, env: slices.Concat(env, r.imposed, p.env), inherit: inherit, stdin: p.stdin, input: p.input, stdout: p.stdout}
}

func (r *Repo) globals(p place) []string {
	gitDir := r.CommonDir
	if p.gitDir != "" {
		gitDir = p.gitDir
	}
	global := []string{"--git-dir=" + gitDir}
	if p.tree != "" {
		global = append(global, "--work-tree="+p.tree)
	}
	return slices.Concat(global, quiet, p.config)
}

// alone keeps git from fetching what it lacks: from whom, and by which program, is in a file that somebody without walls
// could have written. Gits that do not know the first of them start another that may not speak to anybody.
var alone = []string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"}

// quiet keeps git from starting anything of its own while a transaction is under way: no hook, no
// gc, no monitor; and makes it wait a little for the ref locks of somebody else's git.
var quiet = []string{
	"-c", "core.hooksPath=/dev/null",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "core.fsmonitor=false",
	"-c", "submodule.recurse=false",
	"-c", "core.filesRefLockTimeout=5000",
	"-c", "core.packedRefsTimeout=10000",
	"-c", "advice.detachedHead=false",
}

// durably makes git fsync what it writes before anything else relies on it.
var durably = []string{"-c", "core.fsync=committed,reference", "-c", "core.fsyncMethod=batch"}
