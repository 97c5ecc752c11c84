package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Promises about runs on Slurm.
const (
	submitExtra   = 50 * time.Millisecond  // over sbatch and a start
	manySubmits   = 100                    // runs submitted at once
	submitRatio   = 2                      // to as many calls of sbatch
	nodeExtra     = 300 * time.Millisecond // of fetch, walls and push, with a warm cache
	watchShare    = 0.01                   // of a processor, for manySubmits runs
	watchDuration = 30 * time.Second
)

// platformComparisons measures runs on Slurm, if sbatch is installed and a cluster answers; see scripts/slurm.sh. Jobs are held, so
// that none begins.
func (b *bench) platformComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	for _, name := range []string{"SLURM_CONF", "SLURM_CLUSTERS"} {
		if value := os.Getenv(name); value != "" {
			b.env = append(b.env, name+"="+value)
		}
	}
	if _, err := exec.LookPath("sbatch"); err != nil {
		fmt.Println("runs on Slurm are not measured: there is no sbatch")
		return nil, true, nil
	}
	if _, _, err := b.run(ctx, command{argv: []string{"sinfo"}, dir: b.root}); err != nil {
		fmt.Println("runs on Slurm are not measured: no cluster answers sinfo")
		return nil, true, nil
	}
	small, err := b.newSlurmRepository(ctx, "slurm-200", 200)
	if err != nil {
		return nil, false, err
	}
	large, err := b.newSlurmRepository(ctx, "slurm-10000", 10_000)
	if err != nil {
		return nil, false, err
	}
	if sound, err = small.checkWatch(ctx); err != nil {
		return nil, false, err
	}
	return []comparison{
		{
			title: "submit a run to Slurm", rounds: 15, promise: promise{extra: submitExtra}, baseName: "start and sbatch",
			base: sum(small.startSandbox, small.sbatch), tool: small.submit("1"),
		},
		{
			title: fmt.Sprintf("submit %d runs", manySubmits), rounds: 2, promise: promise{ratio: submitRatio}, baseName: fmt.Sprintf("%d sbatch", manySubmits),
			base: inSequence(manySubmits, small.sbatch), tool: small.submit(strconv.Itoa(manySubmits)),
		},
		{
			title: "a run on a node, 10,000 files", rounds: 10, promise: promise{extra: nodeExtra}, baseName: "alone",
			base: b.timeCommand("/bin/true", large.dir), tool: large.executeAsNode,
		},
	}, sound, nil
}

// newSlurmRepository makes a repository whose runs on Slurm are held.
func (b *bench) newSlurmRepository(ctx context.Context, name string, files int) (*repository, error) {
	r, err := b.newRepository(ctx, name, files)
	if err == nil {
		_, _, err = b.git(ctx, r.dir, "config", "agency.platform.slurm.args", "--hold")
	}
	return r, err
}

// sum returns a timedRun of several ones, one after the other.
func sum(all ...timedRun) timedRun {
	return func(ctx context.Context) (total time.Duration, _ error) {
		for _, one := range all {
			took, err := one(ctx)
			if err != nil {
				return 0, err
			}
			total += took
		}
		return total, nil
	}
}

// sbatch submits a job that is held, and cancels it untimed.
func (r *repository) sbatch(ctx context.Context) (time.Duration, error) {
	out, took, err := r.b.run(ctx, command{
		argv: []string{"sbatch", "--parsable", "--hold", "--output=/dev/null"}, dir: "/", stdin: strings.NewReader("#!/bin/sh\nexec true\n"),
	})
	if err == nil {
		_, _, err = r.b.run(ctx, command{argv: []string{"scancel", strings.TrimSpace(out)}, dir: "/"})
	}
	return took, err
}

// submit returns a timedRun that submits runs, and discards them untimed.
func (r *repository) submit(number string) timedRun {
	return func(ctx context.Context) (time.Duration, error) {
		ids, took, err := r.submitRuns(ctx, number)
		if err == nil {
			_, _, err = r.b.agency(ctx, r.dir, append([]string{"discard"}, ids...)...)
		}
		return took, err
	}
}

func (r *repository) submitRuns(ctx context.Context, number string) (ids []string, took time.Duration, err error) {
	out, took, err := r.b.agency(ctx, r.dir, "run", worktreeName, "--platform", "slurm", "--detach", "-n", number, "--", "/bin/true")
	return strings.Fields(out), took, err
}

// executeAsNode submits a run that is held, executes it as a node does, timed, and discards it.
func (r *repository) executeAsNode(ctx context.Context) (time.Duration, error) {
	ids, _, err := r.submitRuns(ctx, "1")
	if err != nil {
		return 0, err
	}
	job, _, err := r.b.git(ctx, r.dir, "rev-parse", "refs/agency/jobs/"+ids[0])
	if err != nil {
		return 0, err
	}
	_, took, err := r.b.agency(ctx, r.dir, "node", "--hub", filepath.Join(r.dir, ".git"), "--job", strings.TrimSpace(job), ids[0])
	if err == nil {
		_, _, err = r.b.agency(ctx, r.dir, "discard", ids[0])
	}
	return took, err
}

// checkWatch measures the processor time of a wait for many runs, with that of the clients of Slurm that it starts.
func (r *repository) checkWatch(ctx context.Context) (sound bool, err error) {
	ids, _, err := r.submitRuns(ctx, strconv.Itoa(manySubmits))
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, r.b.tool, "wait")
	cmd.Dir, cmd.Env = r.dir, r.b.env
	if err := cmd.Start(); err != nil {
		return false, err
	}
	time.Sleep(watchDuration)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		return false, err
	}
	_ = cmd.Wait() // interrupted
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	share := used.Seconds() / watchDuration.Seconds()
	sound = share <= watchShare
	printRow(fmt.Sprintf("wait for %d runs", manySubmits), "-", "-", "git-agency", fmt.Sprintf("%.2f %% of a CPU", 100*share), "", fmt.Sprintf("promise: ≤ %.0f %%", 100*watchShare), verdict(sound))
	_, _, err = r.b.agency(ctx, r.dir, append([]string{"discard"}, ids...)...)
	return sound, err
}
