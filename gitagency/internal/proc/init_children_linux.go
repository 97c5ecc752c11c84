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
type initChildren struct {
	mu          sync.Mutex
	direct      *children
	directExit  *programExit // exit status of the direct program, until it is reported
	supervisors map[int]bool
}

// childKind is the role of a child of the init process.
type childKind int

const (
	directChild childKind = iota
	supervisorChild
)

// startChild starts a child and records its kind before it can be reaped.
func (f *initChildren) startChild(kind childKind, start func() (int, error)) (*children, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pid, err := start()
	if err != nil {
		return nil, 0, err
	}
	set := newChildren()
	set.programPID = pid
	if kind == supervisorChild {
		f.supervisors[pid] = true
	} else {
		f.direct = set
	}
	return set, pid, nil
}

// supervisorPIDs returns the pids of the supervisors that the init process started.
func (f *initChildren) supervisorPIDs() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.supervisorPIDsLocked()
}

func (f *initChildren) supervisorPIDsLocked() []int {
	pids := make([]int, 0, len(f.supervisors))
	for pid := range f.supervisors {
		pids = append(pids, pid)
	}
	return pids
}

// withStartsBlocked calls do while no other supervisor can be started.
func (f *initChildren) withStartsBlocked(do func(others []int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.supervisorPIDsLocked())
}

// reap collects all exited children for as long as the namespace exists, and calls tell after each batch. It uses
// WNOHANG and the mutex rather than a blocking wait, which could collect a child that startChild is just waiting for.
func (f *initChildren) reap(sigchld <-chan os.Signal, tell func(func())) {
	const batch = 1000 // the lock is released after this many, as a program may leave any number of orphans
	for range sigchld {
		for more := true; more; { // one SIGCHLD may stand for several children
			f.mu.Lock()
			pid, err := 1, error(nil)
			for n := 0; n < batch && err == nil && pid != 0; n++ {
				pid, err = f.reapOne()
			}
			more = err == nil && pid != 0
			f.reportDirect(err != nil)
			f.mu.Unlock()
			tell(func() {}) // wake the event loop, which checks whether the last child is gone
		}
	}
}

// reapOne collects one child. It returns an error when there are no children at all, and pid 0 when none has exited.
func (f *initChildren) reapOne() (int, error) {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|reportStops, nil)
	switch {
	case errors.Is(err, syscall.EINTR):
		return 1, nil // retry
	case err != nil || pid == 0:
	case status.Stopped():
		if set := f.direct; set != nil {
			set.tellStopped(childStop{pid, status.StopSignal()})
		}
	case f.direct != nil && pid == f.direct.programPID:
		f.directExit = &programExit{status: status}
	default:
		delete(f.supervisors, pid)
	}
	return pid, err
}

// reportDirect reports to the supervisor of the direct program that it has exited, and that all of its orphans are gone.
// childless says that the init process has no children at all.
func (f *initChildren) reportDirect(childless bool) {
	if f.direct == nil {
		return
	}
	empty := childless
	if !empty && len(f.supervisors) > 0 {
		empty = !slices.ContainsFunc(childPIDs(), func(pid int) bool { return !f.supervisors[pid] })
	}
	if f.directExit != nil {
		f.directExit.isLast = empty
		f.direct.exited <- *f.directExit
		f.directExit = nil
		f.direct.programPID = 0
	}
	if empty && f.direct.programPID == 0 {
		close(f.direct.empty)
		f.direct = nil
	}
}
