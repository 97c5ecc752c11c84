package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bench runs commands in a fixed environment, so that the user's settings and hooks have no effect.
type bench struct {
	tool         string // absolute path
	root         string // directory of all temporary files
	env          []string
	roundsFactor int // multiplies the number of rounds
	verbose      bool
}

// gitConfig applies to both sides: no maintenance may start during a measurement.
const gitConfig = `[user]
	name = bench
	email = bench@localhost
[gc]
	auto = 0
[maintenance]
	auto = false
`

func newBench(tool, root string, factor int, verbose bool) (*bench, error) {
	config := filepath.Join(root, "gitconfig")
	if err := os.WriteFile(config, []byte(gitConfig), 0o600); err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	return &bench{tool: tool, root: root, roundsFactor: factor, verbose: verbose, env: []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + root,
		"TMPDIR=" + root,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + config,
		"AGENCY_DATA_DIR=" + filepath.Join(root, "data"),
	}}, nil
}

// git runs git and returns its output and its duration.
func (b *bench) git(ctx context.Context, dir string, args ...string) (string, time.Duration, error) {
	return b.run(ctx, command{argv: slices.Concat([]string{"git"}, args), dir: dir})
}

// agency runs git-agency and returns its output and its duration.
func (b *bench) agency(ctx context.Context, dir string, args ...string) (string, time.Duration, error) {
	return b.run(ctx, command{argv: slices.Concat([]string{b.tool}, args), dir: dir})
}

type command struct {
	argv  []string
	dir   string
	env   []string // in addition to the bench's own
	stdin io.Reader
}

func (b *bench) run(ctx context.Context, c command) (string, time.Duration, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, slices.Concat(b.env, c.env), c.stdin
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it may have children to stop
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w\n%s", strings.Join(c.argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), took, nil
}

// countGitProcesses counts the git processes, at any depth, that a git-agency command starts.
func (b *bench) countGitProcesses(ctx context.Context, dir string, args ...string) (int, error) {
	trace := filepath.Join(b.root, "trace-"+filepath.Base(dir))
	argv := slices.Concat([]string{b.tool}, args)
	if _, _, err := b.run(ctx, command{argv: argv, dir: dir, env: []string{"GIT_TRACE2_EVENT=" + trace}}); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(trace)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count git processes: %w", err)
	}
	return bytes.Count(data, []byte(`{"event":"start",`)), nil
}

// timedRun runs one side of a comparison once and returns how long it took.
type timedRun func(context.Context) (time.Duration, error)

// timeCommand returns a timedRun of a command.
func (b *bench) timeCommand(program, dir string, args ...string) timedRun {
	return func(ctx context.Context) (time.Duration, error) {
		_, took, err := b.run(ctx, command{argv: slices.Concat([]string{program}, args), dir: dir})
		return took, err
	}
}

// inParallel returns a timedRun of n parallel calls, until the last one is done.
func inParallel(n int, one timedRun) timedRun {
	return func(ctx context.Context) (time.Duration, error) {
		errs := make([]error, n)
		var all sync.WaitGroup
		began := time.Now()
		for i := range n {
			all.Go(func() { _, errs[i] = one(ctx) })
		}
		all.Wait()
		return time.Since(began), errors.Join(errs...)
	}
}

// inSequence returns a timedRun of n calls one after the other.
func inSequence(n int, one timedRun) timedRun {
	return func(ctx context.Context) (sum time.Duration, _ error) {
		for range n {
			took, err := one(ctx)
			if err != nil {
				return 0, err
			}
			sum += took
		}
		return sum, nil
	}
}

// comparison compares git-agency with a baseline measured in the same rounds.
type comparison struct {
	title      string
	rounds     int
	baseName   string // name of the baseline; "raw git" if empty
	base       timedRun
	tool       timedRun
	promise    promise
	useFastest bool                        // compare the fastest rounds: other processes can only slow down a round
	check      func(context.Context) error // checks that the tool did the work it was timed for
	note       func() string               // remark printed after the row
	warmUp     func(context.Context) error // replaces the first round, which does not count
}

// result is the median or fastest round of each side, and the CPU pressure of the machine, if known.
type result struct {
	base, tool  time.Duration
	cpuPressure string
}

func (r result) ratio() float64       { return float64(r.tool) / float64(r.base) }
func (r result) extra() time.Duration { return r.tool - r.base }

// measureRounds runs the two sides in turn, in alternating order. The first round only warms the caches and does not
// count.
func (b *bench) measureRounds(ctx context.Context, c comparison) (result, error) {
	sides := [2]timedRun{c.base, c.tool}
	var times [2][]time.Duration
	began, waitedBefore := time.Now(), cpuWaitTime()
	for round := range c.rounds + 1 {
		if round == 0 && c.warmUp != nil {
			if err := c.warmUp(ctx); err != nil {
				return result{}, err
			}
			continue
		}
		order := [2]int{0, 1}
		if round%2 == 0 {
			order = [2]int{1, 0}
		}
		for _, side := range order {
			took, err := sides[side](ctx)
			if err != nil {
				return result{}, err
			}
			if round > 0 {
				times[side] = append(times[side], took)
			}
		}
	}
	if b.verbose {
		fmt.Printf("  %s: %s %v, git-agency %v\n", c.title, c.baseName, roundAll(times[0]), roundAll(times[1]))
	}
	r := result{base: median(times[0]), tool: median(times[1])}
	if c.useFastest {
		r = result{base: slices.Min(times[0]), tool: slices.Min(times[1])}
	}
	if waited := cpuWaitTime(); waited > 0 {
		r.cpuPressure = fmt.Sprintf("processes waited for a CPU %.0f %% of the time", 100*(waited-waitedBefore).Seconds()/time.Since(began).Seconds())
	}
	return r, nil
}

// cpuWaitTime returns for how long, since boot, some process had to wait for a CPU. It is 0 where the kernel does not
// report pressure (PSI).
func cpuWaitTime() time.Duration {
	pressure, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	var average [3]float64
	var micros int64
	if _, err := fmt.Sscanf(string(pressure), "some avg10=%f avg60=%f avg300=%f total=%d", &average[0], &average[1], &average[2], &micros); err != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

func roundAll(times []time.Duration) []time.Duration {
	short := slices.Clone(times)
	for i := range short {
		short[i] = short[i].Round(100 * time.Microsecond)
	}
	return short
}
