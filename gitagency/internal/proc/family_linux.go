package proc

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
)

// family is who the keeper waits for: the program in the seat and what it left, and the supervisors of others.
type family struct {
	mu     sync.Mutex
	set    *children
	dead   *death // how the program in the seat ended, until somebody is told
	beside map[int]bool
}

// kinship is what a child is to the keeper.
type kinship int

const (
	inSeat kinship = iota
	beside
)

// start starts a child, so that it is known for what it is before it can have ended.
func (f *family) start(as kinship, start func() (int, error)) (*children, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pid, err := start()
	if err != nil {
		return nil, 0, err
	}
	set := newChildren()
	set.program = pid
	if as == beside {
		f.beside[pid] = true
	} else {
		f.set = set
	}
	return set, pid, nil
}

// others are the supervisors that we started.
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

// alone does something while no other supervisor can be started.
func (f *family) alone(do func(others []int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.othersLocked())
}

// reap collects every child, for as long as there is a room, and tells of those who matter. It never waits
// for one, because it would take from a start what only that may hear of.
func (f *family) reap(some <-chan os.Signal, tell func(func())) {
	const many = 1000 // some leave more behind than anybody could count
	for range some {
		for more := true; more; { // one signal may stand for all of them
			f.mu.Lock()
			pid, err := 1, error(nil)
			for n := 0; n < many && err == nil && pid != 0; n++ {
				pid, err = f.collect()
			}
			more = err == nil && pid != 0
			f.settle(err != nil)
			f.mu.Unlock()
			tell(func() {}) // whoever waits for the last to go, looks again
		}
	}
}

// collect hears of one child. Without any, it is an error.
func (f *family) collect() (int, error) {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	switch {
	case errors.Is(err, syscall.EINTR):
		return 1, nil // look again
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

// settle tells whoever oversees the program in the seat what there is to know. childless says that we have
// no children at all.
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
