package proc

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
)

// initChildren are the children that the init process of a namespace waits for: the program that it runs directly, with
// the orphans of that program, and the supervisors of all other programs.
type family struct {
	mu     sync.Mutex
	set    *children
	dead   *death // exit status of the direct program, until it is reported
	beside map[int]bool
}

// childKind is the role of a child of the init process.
type kinship int

const (
	inSeat kinship = iota
	beside
)

// startChild starts a child and records its kind before it can be reaped.
func (f *family) start(kind kinship, start func() (int, error)) (*children, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pid, err := start()
	if err != nil {
		return nil, 0, err
	}
	set := newChildren()
	set.program = pid
	if kind == beside {
		f.beside[pid] = true
	} else {
		f.set = set
	}
	return set, pid, nil
}

// supervisorPIDs returns the pids of the supervisors that the init process started.
func (f *family) others() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.othersLocked()
}

func (f *family) othersLocked() []int {
	pids := make([]int, 0, len(f.beside))
	for pid := range f.beside {
		pids = append(pids, pid)
	}
	return pids
}

// withStartsBlocked calls do while no other supervisor can be started.
func (f *family) alone(do func(others []int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.othersLocked())
}

// reap collects all exited children for as long as the namespace exists, and calls tell after each batch. It uses
// WNOHANG and the mutex rather than a blocking wait, which could collect a child that startChild is just waiting for.
func (f *family) reap(sigchld <-chan os.Signal, tell func(func())) {
	const batch = 1000 // the lock is released after this many, as a program may leave any number of orphans
	for range sigchld {
		for more := true; more; { // one SIGCHLD may stand for several children
			f.mu.Lock()
			pid, err := 1, error(nil)
			for n := 0; n < batch && err == nil && pid != 0; n++ {
				pid, err = f.collect()
			}
			more = err == nil && pid != 0
			f.settle(err != nil)
			f.mu.Unlock()
			tell(func() {}) // wake the event loop, which checks whether the last child is gone
		}
	}
}

// reapOne collects one child. It returns an error when there are no children at all, and pid 0 when none has exited.
func (f *family) collect() (int, error) {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	switch {
	case errors.Is(err, syscall.EINTR):
		return 1, nil // retry
	case err != nil || pid == 0:
	case status.Stopped():
		if set := f.set; set != nil {
			go func() {
				select {
				case set.stopped <- stop{pid, status.StopSignal()}:
				case <-set.empty:
				}
			}()
		}
	case f.set != nil && pid == f.set.program:
		f.dead = &death{status: status}
	default:
		delete(f.beside, pid)
	}
	return pid, err
}

// reportDirect reports to the supervisor of the direct program that it has exited, and that all of its orphans are gone.
// childless says that the init process has no children at all.
func (f *family) settle(childless bool) {
	if f.set == nil {
		return
	}
	empty := childless
	if !empty && len(f.beside) > 0 {
		empty = !slices.ContainsFunc(ownChildren(), func(pid int) bool { return !f.beside[pid] })
	}
	if f.dead != nil {
		f.dead.alone = empty
		f.set.ended <- *f.dead
		f.dead = nil
		f.set.program = 0
	}
	if empty && f.set.program == 0 {
		close(f.set.empty)
		f.set = nil
	}
}
