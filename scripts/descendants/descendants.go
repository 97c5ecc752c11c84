// Package descendants signals all processes below this one, for simulated engines: those that end a job end all that it has started.
package descendants

import (
	"os"
	"syscall"
	"time"
)

// killTimeout bounds the wait for the end of processes that were killed.
const killTimeout = 2 * time.Minute

// list returns the processes below this one, also those in other sessions: a subreaper stays the ancestor of
// processes whose parent has ended.
func list() []int {
	parents := map[int]int{}
	for _, pid := range pids() {
		if s, ok := readStat(pid); ok && !s.isDead {
			parents[pid] = s.parent
		}
	}
	var below []int
	for pid := range parents {
		for p, depth := parents[pid], 0; p > 1 && depth < 1000; p, depth = parents[p], depth+1 {
			if p == os.Getpid() {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}

// Signal signals all processes below this one.
func Signal(sig syscall.Signal) {
	for _, pid := range list() {
		_ = syscall.Kill(pid, sig) // fails if it has just ended
	}
}

// Kill kills all processes below this one, and returns when no process is left below this one.
func Kill() {
	for deadline := time.Now().Add(killTimeout); len(list()) > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		Signal(syscall.SIGKILL)
	}
}
