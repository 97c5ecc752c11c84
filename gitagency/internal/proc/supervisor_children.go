package proc

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// leftoverGrace is the time that other processes get after a program has ended by itself: in "program > >(tee log)" the
// last output is just being written.
const leftoverGrace = 500 * time.Millisecond

const terminateInterval = 50 * time.Millisecond

// endCounter counts requests to end. An engine that ends a job, or a manager that ends a service, signals all processes, and then the
// parent and the init process pass on the signals that they got themselves. So the first request of the parent is a copy of a
// signal that came before it, or the other way round, and so is a signal shortly after the first.
type endCounter struct {
	parent, signal int
	firstSignal    time.Time
}

// signalWindow is the time in which the signals of one request arrive, on a busy machine.
const signalWindow = 250 * time.Millisecond

// byParent counts a request of the parent, and reports whether it is a copy.
func (c *endCounter) byParent() (isCopy bool) {
	c.parent++
	return c.parent == 1 && c.signal == 1
}

// bySignal counts a SIGTERM, and reports whether it is a copy.
func (c *endCounter) bySignal(now time.Time) (isCopy bool) {
	if c.signal > 0 && now.Sub(c.firstSignal) < signalWindow {
		return true
	}
	if c.signal++; c.signal == 1 {
		c.firstSignal = now
	}
	return c.signal == 1 && c.parent == 1
}

// superviseUntilGone waits until the program and all of its descendants are gone. It sends SIGTERM to all of them when
// the program has ended, its time is up or it is asked to; and SIGKILL when the grace is over or it is asked a second
// time, as an endCounter counts.
func (s *supervisor) superviseUntilGone(tree processTree, children *children, requests <-chan supervisorRequest, endRequests <-chan os.Signal) {
	if s.startThread != nil {
		defer close(s.startThread)
	}
	timeout := timerOf(s.order.Timeout)
	var leftoverTimer, killTimer, rescan <-chan time.Time
	ended, ending := false, false // of the program; of everything
	seen, asked := newDescendants(), endCounter{}
	terminate := func() (left int) {
		ending = true
		s.continueProgram(foregroundRequest, ended) // in the background of its terminal, a last message could stop it
		killTimer, rescan = time.After(s.order.Grace), time.After(terminateInterval)
		return tree.terminate(seen, s.programPID)
	}
	killAll := func() {
		if d, ok := children.takeExit(); ok && !ended {
			s.report(supervisorReport{Status: &d.status})
			ended = true
		}
		tree.kill(s.programPID, children.empty)
		killTimer = nil
	}
	onRequest := func(isCopy bool, why supervisorReport) {
		if isCopy {
			return
		}
		if !ended { // an exit status that has been reported is final
			s.report(why)
		}
		if ending {
			killAll()
			return
		}
		terminate()
	}
	for {
		select {
		case d := <-children.exited:
			s.report(supervisorReport{Status: &d.status})
			ended, timeout = true, nil
			if !d.isLast && !ending {
				leftoverTimer = time.After(min(s.order.Grace, leftoverGrace))
			}
		case <-leftoverTimer:
			if !ending {
				s.report(supervisorReport{Leftovers: terminate()})
			}
		case <-timeout:
			timeout = nil
			onRequest(false, supervisorReport{EndRequested: true, TimedOut: true})
		case request, open := <-requests:
			switch {
			case !open: // the parent is gone
				tree.kill(s.programPID, children.empty)
				return
			case request != endRequest:
				s.continueProgram(request, ended)
			default:
				onRequest(asked.byParent(), supervisorReport{EndRequested: true})
			}
		case <-endRequests:
			onRequest(asked.bySignal(time.Now()), supervisorReport{EndRequested: true})
		case <-killTimer:
			killAll()
		case <-rescan: // processes that were just being forked at the last SIGTERM
			rescan = time.After(terminateInterval)
			tree.terminateNew(seen)
		case stop := <-children.stopped:
			if s.isJobStop(stop) && !ended && !ending {
				s.report(supervisorReport{StopSignal: stop.signal})
			}
		case <-children.empty:
			if d, ok := children.takeExit(); ok && !ended {
				s.report(supervisorReport{Status: &d.status})
			}
			tree.release(s.programPID)
			return
		}
	}
}

// timerOf returns a channel that receives after a time; nil, which never does, for no limit.
func timerOf(limit time.Duration) <-chan time.Time {
	if limit <= 0 {
		return nil
	}
	return time.After(limit)
}

// isJobStop reports whether job control has stopped a program on a terminal. Any other child that has stopped to be
// traced goes on.
func (s supervisor) isJobStop(stop childStop) bool {
	traced := false
	s.runOnStartThread(func() { traced = detachTraced(stop) })
	return !traced && stop.pid == s.programPID && s.order.Terminal
}

// processTree signals all descendants of a program.
type processTree interface {
	terminate(h descendants, program int) int // sends SIGTERM to all, and returns their number
	terminateNew(h descendants) int           // sends SIGTERM to those that appeared since
	kill(program int, empty <-chan struct{})
	release(program int)
}

// children are the processes that the supervisor waits for: the program, and orphans adopted from it.
type children struct {
	programPID int
	exited     chan programExit
	stopped    chan childStop
	empty      chan struct{} // closed when there are none
}

func newChildren() *children {
	return &children{exited: make(chan programExit, 1), stopped: make(chan childStop), empty: make(chan struct{})}
}

// programExit is the exit status of the program, and whether it was the last child.
type programExit struct {
	status syscall.WaitStatus
	isLast bool
}

// childStop is a child that has stopped: by job control, or in a ptrace stop, because it asked to be traced by its parent.
type childStop struct {
	pid    int
	signal syscall.Signal
}

// tellStopped passes a stop on without waiting: the supervisor stops processes itself before it kills them, and does not
// receive from the channel then.
func (c *children) tellStopped(stop childStop) {
	go func() {
		select {
		case c.stopped <- stop:
		case <-c.empty:
		}
	}()
}

// takeExit returns the program's exit, if it is known and has not been taken yet.
func (c *children) takeExit() (programExit, bool) {
	select {
	case d := <-c.exited:
		return d, true
	default:
		return programExit{}, false
	}
}

// reap collects all children until there are none.
func (c *children) reap() {
	defer close(c.empty)
	var program *programExit
	for drained := 0; ; drained++ {
		var status syscall.WaitStatus
		flags := reportStops
		if program != nil {
			flags |= syscall.WNOHANG // only to see whether children are left
		}
		pid, err := syscall.Wait4(-1, &status, flags, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && pid > 0 && status.Stopped() {
			c.tellStopped(childStop{pid, status.StopSignal()})
			continue
		}
		if program != nil && pid > 0 && drained < 1000 { // bounded, as a program may leave any number of zombies
			continue
		}
		if program != nil {
			program.isLast = err != nil
			c.exited <- *program
			program = nil
		}
		switch {
		case err != nil:
			return
		case pid == c.programPID:
			program, drained = &programExit{status: status}, 0
		}
	}
}
