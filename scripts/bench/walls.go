package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wallComparisons measures the cost of walls around commands.
func (b *bench) wallComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	const program = "/bin/true" // does nothing, so that only the overhead is measured
	small, err := b.newWalledRepo(ctx, "walled", 200)
	if err != nil {
		return nil, false, err
	}
	if sound, err = small.checkDetachedRuns(ctx); err != nil {
		return nil, false, err
	}
	exec := b.timeCommand(b.tool, small.dir, "exec", small.sandboxes[0], "--", program)
	contests := []comparison{{
		title: "exec behind walls", rounds: 40, promise: promise{extra: 15 * time.Millisecond}, useFastest: true,
		baseName: "alone", base: b.timeCommand(program, small.dir), tool: exec,
	}}
	if why := b.bubblewrapProblem(ctx, small.dir); why != "" {
		printRow("exec behind walls", "bwrap", "-", "git-agency", "-", "", "promise: ≤ 3.00 ×", "SKIPPED: "+why)
	} else {
		contests = append(contests, comparison{
			title: "exec behind walls", rounds: 40, promise: promise{ratio: 3}, useFastest: true,
			baseName: "bwrap", base: b.timeCommand("bwrap", small.dir, bubblewrapArgs...), tool: exec,
		})
	}
	large, err := b.newWalledRepo(ctx, "committed", 100_000)
	if err != nil {
		return nil, false, err
	}
	middle, err := b.newWalledRepo(ctx, "committing", 30_000)
	if err != nil {
		return nil, false, err
	}
	commit, err := middle.commitComparison(ctx)
	if err != nil {
		return nil, false, err
	}
	build, err := b.newBuildComparison(ctx)
	if err != nil {
		return nil, false, err
	}
	return append(contests, small.runComparison(), commit, large.commitImportComparison(), build), sound, nil
}

// runComparison compares a run of a command with a start and an exec of the same command.
func (r *repository) runComparison() comparison {
	const program = "/bin/true"
	return comparison{
		title: "run of a command", rounds: 20, promise: promise{extra: 50 * time.Millisecond}, useFastest: true,
		baseName: "start, exec",
		base: func(ctx context.Context) (time.Duration, error) {
			id, started, err := r.b.agency(ctx, r.dir, "start", worktreeName, "--isolation", "os", "--outputs", "none")
			if err != nil {
				return 0, err
			}
			_, executed, err := r.b.agency(ctx, r.dir, "exec", strings.TrimSpace(id), "--", program)
			return started + executed, err
		},
		tool: func(ctx context.Context) (time.Duration, error) {
			_, took, err := r.b.agency(ctx, r.dir, "run", worktreeName, "--isolation", "os", "--outputs", "none", "-p", "task", "--", program)
			return took, err
		},
	}
}

// newWalledRepo creates a repository with one sandbox that has all walls.
func (b *bench) newWalledRepo(ctx context.Context, name string, files int) (*repository, error) {
	r, err := b.newRepository(ctx, name, files)
	if err != nil {
		return nil, err
	}
	return r, r.startWalled(ctx)
}

func (r *repository) startWalled(ctx context.Context) error {
	id, _, err := r.b.agency(ctx, r.dir, "start", worktreeName, "--isolation", "os", "--outputs", "none")
	r.sandboxes = append(r.sandboxes, strings.TrimSpace(id))
	return err
}

// bubblewrapArgs are the arguments of bwrap. They build less than git-agency does: no overlay over the git directory,
// no hidden files, no Landlock, no seccomp filter, and no namespace that later commands can join.
var bubblewrapArgs = []string{"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent", "/bin/true"}

// bubblewrapProblem describes why bwrap cannot be measured; it is empty if it can.
func (b *bench) bubblewrapProblem(ctx context.Context, dir string) string {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return "there is no bwrap; install it with: sudo apt-get install bubblewrap"
	}
	if _, err := b.timeCommand("bwrap", dir, bubblewrapArgs...)(ctx); err != nil {
		return "bwrap does not work here: " + strings.Join(strings.Fields(err.Error()), " ")
	}
	return ""
}

// commitImportComparison measures the time from the end of a small commit behind walls until exec returns, against
// the same time after a command that changed nothing: the difference is the import of the commit. The commit itself,
// in which git reads and writes the whole index several times, is not measured.
func (r *repository) commitImportComparison() comparison {
	const (
		nothing = `date +%s%N`
		commit  = `echo "$1" >changed && git add changed && git commit --quiet -m "inside $1" && ` + nothing
	)
	inside, round := r.sandboxes[0], 0
	after := func(script string) timedRun {
		return func(ctx context.Context) (time.Duration, error) {
			round++
			ended, _, err := r.b.agency(ctx, r.dir, "exec", inside, "--", "sh", "-c", script, "sh", strconv.Itoa(round))
			now := time.Now()
			if err != nil {
				return 0, err
			}
			at, err := strconv.ParseInt(strings.TrimSpace(ended), 10, 64)
			return now.Sub(time.Unix(0, at)), err
		}
	}
	return comparison{
		title: "import a commit, 100,000", rounds: 12, promise: promise{extra: 60 * time.Millisecond}, useFastest: true,
		baseName: "nothing", base: after(nothing), tool: after(commit),
		check: func(ctx context.Context) error { return r.checkImported(ctx, inside) },
	}
}

// commitComparison measures a small commit in a sandbox behind walls against one in a worktree of git, both by the clock
// around git add and git commit: the walls are built once for a whole session of an agent.
func (r *repository) commitComparison(ctx context.Context) (comparison, error) {
	if _, err := r.addWorktree(ctx); err != nil {
		return comparison{}, err
	}
	const script = `began=$(date +%s%N) && echo "$1" >changed && git add changed && git commit --quiet -m "inside $1" && echo $(($(date +%s%N) - began))`
	inside, round := r.sandboxes[0], 0
	within := func(dir string, through ...string) timedRun {
		return func(ctx context.Context) (time.Duration, error) {
			round++
			argv := slices.Concat(through, []string{"sh", "-c", script, "sh", strconv.Itoa(round)})
			out, _, err := r.b.run(ctx, command{argv: argv, dir: dir})
			if err != nil {
				return 0, err
			}
			took, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
			return time.Duration(took), err
		}
	}
	return comparison{
		title: "commit behind walls, 30,000", rounds: 12, promise: promise{ratio: 1.5}, useFastest: true, baseName: "outside",
		base: within(r.rawWorktrees[0].path), tool: within(r.dir, r.b.tool, "exec", inside, "--"),
		check: func(ctx context.Context) error { return r.checkImported(ctx, inside) },
	}, nil
}

// checkImported makes sure that the last commit was imported.
func (r *repository) checkImported(ctx context.Context, id string) error {
	subject, _, err := r.b.git(ctx, r.dir, "log", "-1", "--format=%s", "agency/sandbox-"+id)
	if err == nil && !strings.HasPrefix(subject, "inside ") {
		err = fmt.Errorf("the commits of %s were not imported: the last is %q", id, subject)
	}
	return err
}

// newBuildComparison builds this project, cloned from the current directory, behind walls and outside of them, with
// equally warm caches. Each round compiles what a change to the library requires, and links.
func (b *bench) newBuildComparison(ctx context.Context) (comparison, error) {
	source, err := os.Getwd()
	if err != nil {
		return comparison{}, err
	}
	modules, _, err := b.run(ctx, command{argv: []string{"go", "env", "GOMODCACHE"}, env: []string{"HOME=" + os.Getenv("HOME")}})
	if err != nil {
		return comparison{}, err
	}
	r := &repository{b: b, dir: filepath.Join(b.root, "project")}
	if _, _, err := b.git(ctx, b.root, "clone", "--quiet", "--no-hardlinks", source, r.dir); err != nil {
		return comparison{}, err
	}
	if _, _, err := b.agency(ctx, r.dir, "worktree", "create", worktreeName); err != nil {
		return comparison{}, err
	}
	if err := r.startWalled(ctx); err != nil {
		return comparison{}, err
	}
	if _, err := r.addWorktree(ctx); err != nil {
		return comparison{}, err
	}
	inside, err := r.sandboxPath(ctx, r.sandboxes[0])
	if err != nil {
		return comparison{}, err
	}
	builder := func(tree, cache string, through ...string) timedRun {
		cache = filepath.Join(b.root, cache)
		env := []string{"GOCACHE=" + cache, "GOMODCACHE=" + strings.TrimSpace(modules), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOTOOLCHAIN=local", "CGO_ENABLED=0"}
		argv := append(through, "go", "build", "-tags", "urfave_cli_no_docs", "-trimpath", "-buildvcs=false", "-o", "bench.out", "./cmd/git-agency")
		return func(ctx context.Context) (time.Duration, error) {
			if err := os.Mkdir(cache, 0o755); err != nil && !os.IsExist(err) {
				return 0, err
			}
			r.made++
			changed := fmt.Sprintf("package gitagency\n\n// Round is never the same.\nconst Round = %d\n", r.made)
			if err := os.WriteFile(filepath.Join(tree, "gitagency", "round.go"), []byte(changed), 0o600); err != nil {
				return 0, err
			}
			_, took, err := b.run(ctx, command{argv: argv, dir: tree, env: env})
			return took, err
		}
	}
	return comparison{
		title: "go build behind walls", rounds: 5, promise: promise{ratio: 1.1}, useFastest: true, baseName: "outside",
		base: builder(r.rawWorktrees[0].path, "cache-outside"),
		tool: builder(inside, "cache-inside", b.tool, "exec", r.sandboxes[0], "--"),
	}, nil
}

// removeAll removes a directory, including directories left by the kernel that even their owner may not enter.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
