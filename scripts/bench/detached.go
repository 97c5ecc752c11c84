package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Promises about a detached run whose agent is silent.
const (
	detachedRuns     = 10
	promisedMemoryKB = 12 << 10
)

// checkDetachedRuns measures what detached runs cost whose agents are silent: the memory of the processes of git-agency,
// shared pages divided by the number of their users, and the processor time of 5 seconds.
func (r *repository) checkDetachedRuns(ctx context.Context) (sound bool, err error) {
	out, _, err := r.b.agency(ctx, r.dir, "run", worktreeName, "--isolation", "os", "--detach", "-n", strconv.Itoa(detachedRuns), "-p", "task", "--", "sleep", "600")
	ids := strings.Fields(out)
	defer func() {
		_, _, stopErr := r.b.agency(context.WithoutCancel(ctx), r.dir, append([]string{"stop"}, ids...)...)
		err = errors.Join(err, stopErr)
	}()
	if err != nil {
		return false, err
	}
	time.Sleep(8 * time.Second) // until they have started, and returned the memory that they needed for it
	memory, before, err := detachedCost(ids)
	if err != nil {
		return false, err
	}
	time.Sleep(5 * time.Second)
	_, after, err := detachedCost(ids)
	if err != nil {
		return false, err
	}
	memory /= len(ids)
	small, idle := memory <= promisedMemoryKB, after == before
	printRow("a detached run, memory", "-", "-", "git-agency", fmt.Sprintf("%.1f MB", float64(memory)/1024), "", "promise: ≤ 12 MB", verdict(small))
	printRow("10 detached runs, processor", "-", "-", "5 s of silence", fmt.Sprintf("%d ms", 10*(after-before)), "", "promise: none", verdict(idle))
	return small && idle, nil
}

// detachedCost returns the proportional memory of the processes of git-agency that work for invocations, in kB, and their
// processor time in ticks.
func detachedCost(ids []string) (memory, ticks int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, 0, err
	}
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if err != nil || !worksFor(strings.Split(string(line), "\x00"), ids) {
			continue // it has ended, or is another's
		}
		rollup, err := os.ReadFile(filepath.Join(filepath.Dir(path), "smaps_rollup"))
		if err != nil {
			return 0, 0, err
		}
		for row := range strings.Lines(string(rollup)) {
			if fields := strings.Fields(row); len(fields) > 1 && fields[0] == "Pss:" {
				kb, err := strconv.Atoi(fields[1])
				if err != nil {
					return 0, 0, err
				}
				memory += kb
			}
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			return 0, 0, err
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		for _, field := range strings.Fields(after)[11:13] {
			n, err := strconv.Atoi(field)
			if err != nil {
				return 0, 0, err
			}
			ticks += n
		}
	}
	return memory, ticks, nil
}

// worksFor reports whether a command line is that of a process of git-agency for one of the invocations.
func worksFor(argv, ids []string) bool {
	if len(argv) < 2 {
		return false
	}
	for _, id := range ids {
		if argv[0] == "git-agency-supervisor" && strings.HasSuffix(argv[1], "/"+id) || len(argv) > 2 && argv[1] == "supervise" && argv[2] == id {
			return true
		}
	}
	return false
}
