package proc

import (
	"syscall"
	"time"
)

// terminateAll asks every program in the namespace to end; on a second call they are killed.
func (k *initProcess) terminateAll() {
	k.ending = true
	if k.direct != nil {
		select {
		case k.direct.terminateRequests <- syscall.SIGTERM:
		default: // enough requests are queued
		}
	}
	for _, pid := range k.children.supervisorPIDs() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// terminate sends SIGTERM to the direct program and its descendants. When there are no other supervisors it signals the
// whole namespace, where the kernel misses no process.
func (k *initProcess) terminate(h descendants, program int) (found int) {
	k.children.withStartsBlocked(func(others []int) {
		h.exclude(others)
		if len(others) > 0 {
			found = Subreaper.terminate(h, program)
		} else {
			found = PIDNamespace.terminate(h, program)
		}
	})
	return found
}

func (k *initProcess) terminateNew(h descendants) (found int) {
	k.children.withStartsBlocked(func(others []int) {
		h.exclude(others)
		found = Subreaper.terminateNew(h)
	})
	return found
}

func (k *initProcess) kill(_ int, empty <-chan struct{}) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var others []int
		k.children.withStartsBlocked(func(pids []int) {
			if others = pids; len(others) == 0 {
				_ = syscall.Kill(-1, syscall.SIGKILL) // all but process 1, atomically: no process is left that could fork
			}
		})
		if len(others) > 0 {
			// In rounds during which no supervisor can be started: a supervisor that is in no list yet would be
			// taken for a descendant, and a child that is stopped between fork and exec blocks us.
			killDescendants(k.children.withStartsBlocked, empty)
			return
		}
		select {
		case <-empty:
			return
		case <-time.After(pause):
		}
	}
}

func (k *initProcess) release(int) {}
