package proc

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// WallBuilder builds the walls around programs. Only the WallBuilder can read a plan.
type Builder struct {
	// Prepare does work that needs no plan in advance, on any thread. It may be nil.
	Ready func()
	// Apply builds the walls of a namespace, as its process 1, before anything runs in it.
	Raise func(plan []byte) error
	// Restrict adds the restrictions of a single program, on the thread that forks it.
	Shut func(plan []byte) error
	// Dismantle, called when nothing runs in a namespace any more, removes what the kernel would be slow to clean up. It
	// may be nil.
	Clear func(plan []byte) error
}

// Supervise runs the supervisor that this process was started as, and does not return; in any other process it does
// nothing. A supervisor is the same executable, started again under another argv[0], so that no second program has to be
// installed. Call it in an init function. Packages initialised earlier are initialised in supervisors as well.
func Supervise(b Builder) {
	if len(os.Args) < 2 || os.Args[0] != supervisorName {
		return
	}
	switch {
	case len(os.Args) == 2:
		runtime.LockOSThread() // the program must be forked by the thread that dropped its capabilities
		if endRequests, ok := prepare(); ok {
			inherited().supervise(endRequests)
		}
	case os.Args[2] == roleKeeper:
		elsewhere(func() { keep(b) })
	case os.Args[2] == roleInside:
		elsewhere(func() {
			if endRequests, ok := prepare(); ok {
				inside(b).supervise(endRequests)
			}
		})
	}
	os.Exit(0) // when this is process 1, the kernel kills everything else
}

// onOtherThread runs do on another thread than the main one. Init functions are locked to the main thread, and waking
// a locked goroutine takes a switch between threads.
func elsewhere(do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	<-done
}

// Roles of a supervisor other than the default, one with a single program.
const (
	roleKeeper = "keeper" // process 1 of a namespace
	roleInside = "inside" // started by an init process, for one program among several
)

// supervisor supervises one program.
type supervisor struct {
	control *os.File
	dir     *os.File      // initial directory of the program
	streams [3]int        // the program's 0, 1 and 2; as numbers, because os.File may change O_NONBLOCK for others
	at      func(int) int // descriptor number of the n-th file handed over; the caller closes it
	order   order
	shut    func() error // applies the walls of the program; nil: none
	thread  chan func()  // executes functions on the thread that forked the program, if there are walls
	program int          // pid
}

// newInheritedSupervisor returns a supervisor that uses the descriptors inherited by this process.
func inherited() supervisor {
	s := supervisor{control: os.NewFile(orderFD, "control"), dir: os.NewFile(dirFD, "dir"), at: func(n int) int { return orderFD + n }}
	for i := range s.streams {
		s.streams[i] = streamFD + i
	}
	return s
}

// prepareProcess sets up the signals and descriptors of a supervisor. A value on endRequests is a request to end.
func prepare() (endRequests <-chan os.Signal, ok bool) {
	requests := make(chan os.Signal, 2)
	heed(requests)
	return requests, closeOnExec() == nil // without a message: the parent sees the connection end
}

// handleSignals delivers SIGTERM, the request to end, to requests and drops all other signals that people and programs
// send. They are caught rather than ignored, because the program would inherit an ignored signal.
func heed(requests chan<- os.Signal) {
	dropped := make(chan os.Signal, 1)
	signal.Notify(requests, syscall.SIGTERM)
	signal.Notify(dropped, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGXCPU, syscall.SIGXFSZ)
}

// supervise runs a program as the only task of this process.
func (s supervisor) supervise(endRequests <-chan os.Signal) {
	decoder := json.NewDecoder(s.control)
	if decoder.Decode(&s.order) != nil {
		return
	}
	if s.shut != nil {
		s.order.Way = Subreaper // whatever was ordered: the init process is process 1 already
	}
	if err := s.order.Way.enter(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	if err := s.stand(); err != nil {
		s.say(answer{Failed: err.Error()})
		return
	}
	if err := s.order.Way.settle(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	gatherThreads()
	children := newChildren()
	if s.begin(func(start func() (int, error)) (pid int, err error) {
		children.program, err = start()
		return children.program, err
	}) {
		go children.reap()
		s.oversee(s.order.Way, children, s.requests(decoder.Buffered()), endRequests)
		s.say(answer{Gone: true})
	}
}

// startAndReport starts the program through record, which has to remember its pid, and reports the success or the error.
func (s *supervisor) begin(record func(start func() (int, error)) (int, error)) bool {
	s.say(answer{Starting: true})
	if failure := s.start(record); failure != nil {
		s.say(*failure)
		if s.thread != nil {
			close(s.thread)
		}
		return false
	}
	// The reader or writer at the other end must notice when the program has closed its streams.
	for _, fd := range s.streams {
		_ = syscall.Close(fd)
	}
	s.say(answer{Running: true})
	return true
}

// report sends a report to the parent. A parent that is gone is detected elsewhere.
func (s supervisor) say(a answer) {
	if data, err := json.Marshal(a); err == nil {
		_, _ = s.control.Write(data)
	}
}

// chdirVerified changes to a directory by its name and checks that it is the one that is open: symlinks on the way may
// have changed since it was opened.
func (s supervisor) stand() error {
	dir := string(s.order.Dir)
	open, err := s.dir.Stat()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if here, err := os.Stat("."); err != nil || !os.SameFile(open, here) {
		return errors.Join(errors.New(dir+" is not the directory that it was"), err)
	}
	return nil
}

// preallocateThreads makes the Go runtime create the threads that a supervisor may need: once a program has used up its
// user's process limit, no thread can be created, and just then the supervisor has to act.
func gatherThreads() {
	const enough = 8
	ready, leave := make(chan struct{}), make(chan struct{})
	for range enough {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // a goroutine that ends locked would end its thread
			ready <- struct{}{}
			<-leave
		}()
	}
	for range enough {
		<-ready
	}
	close(leave)
}

// startProgram starts the program, or returns the report that says why that failed.
func (s *supervisor) start(record func(start func() (int, error)) (int, error)) *answer {
	argv, env := inWords(s.order.Argv), inWords(s.order.Env)
	path, err := locate(env, argv[0])
	var wallErr error
	if err == nil {
		attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
		for _, fd := range s.streams {
			attr.Files = append(attr.Files, uintptr(fd))
		}
		if s.order.Terminal {
			attr.Sys.Setctty, attr.Sys.Ctty = true, 0
		}
		fork := func() (int, error) { return syscall.ForkExec(path, argv, attr) }
		if limits := s.limits(); limits.asked() {
			if limits.Cgroup != nil {
				defer limits.Cgroup.Close()
			}
			fork = func() (int, error) { return startLimited(path, argv, attr, limits) }
		}
		s.program, err = record(func() (pid int, err error) {
			if s.shut == nil {
				return fork()
			}
			s.thread = make(chan func())
			go onThreadOfItsOwn(s.thread)
			s.onThread(func() {
				if wallErr = s.shut(); wallErr == nil {
					pid, err = fork()
				}
			})
			return pid, errors.Join(err, wallErr)
		})
	}
	var limit *limitError
	switch {
	case err == nil:
		return nil
	case wallErr != nil:
		return &answer{Failed: wallErr.Error()}
	case errors.As(err, &limit):
		return &answer{Failed: err.Error()}
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOTTY):
		return &answer{Failed: err.Error()}
	case errors.Is(err, errNotOnPath) || errors.Is(err, os.ErrNotExist):
		return &answer{Cannot: err.Error(), Code: 127}
	}
	return &answer{Cannot: err.Error(), Code: 126}
}

// resolveLimits returns the ordered limits, completed with values that must be read before the walls are in force.
func (s *supervisor) limits() Limits {
	l := s.order.Limits
	l.apart = s.shut != nil || s.order.Way == PIDNamespace // every program in a namespace has restrict set
	if s.order.CgroupAt > 0 {
		l.Cgroup = os.NewFile(uintptr(s.at(s.order.CgroupAt)), "cgroup.procs")
	}
	if l.Processes > 0 {
		l.others = otherSupervisors()
	}
	return l
}

// runOnLockedThread executes functions on a dedicated thread, so that dropped capabilities affect no other goroutine.
// It is never the main thread, which represents this process in /proc, and it lives as long as the program, which may
// have asked to be traced by it.
func onThreadOfItsOwn(do <-chan func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for f := range do {
		f()
	}
}

// runOnStartThread runs do on the thread that forks the program.
func (s *supervisor) onThread(do func()) {
	if s.thread == nil {
		do()
		return
	}
	done := make(chan struct{})
	s.thread <- func() { defer close(done); do() }
	<-done
}

var errNotOnPath = errors.New("not found on PATH")

// resolveProgram finds a program as env(1) does, with two differences: it skips relative elements of PATH, whose content
// depends on the current directory; and it never runs a shell for a file that the kernel does not execute.
func locate(env []string, program string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	found := errNotOnPath
	for path := range onPath(env, program) {
		fi, err := os.Stat(path)
		switch {
		case err != nil || fi.IsDir():
		case executable(path) == nil:
			return path, nil
		default:
			found = syscall.EACCES
		}
	}
	return "", found
}

// readRequests returns a channel that gets a value for each request to end, and is closed when the parent is gone.
func (s supervisor) requests(buffered io.Reader) <-chan struct{} {
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		buffer := make([]byte, 1)
		for _, from := range []io.Reader{buffered, s.control} {
			for {
				n, err := from.Read(buffer)
				if err != nil {
					break
				}
				if n > 0 {
					requests <- struct{}{}
				}
			}
		}
	}()
	return requests
}

// leftoverGrace is the time that other processes get after a program has ended by itself: in "program > >(tee log)" the
// last output is just being written.
const patience = 500 * time.Millisecond

const retellEvery = 50 * time.Millisecond

// superviseUntilGone waits until the program and all of its descendants are gone. It sends SIGTERM to all of them when
// the program has ended, its time is up or it is asked to; and SIGKILL when the grace is over or it is asked a second
// time.
func (s supervisor) oversee(tree containing, children *children, requests <-chan struct{}, endRequests <-chan os.Signal) {
	if s.thread != nil {
		defer close(s.thread)
	}
	var timeout, leftoverTimer, killTimer, rescan <-chan time.Time
	if s.order.Timeout > 0 {
		timeout = time.After(s.order.Timeout)
	}
	ended, ending := false, false // of the program; of everything
	seen := newHunt()
	terminate := func() (left int) {
		ending = true
		killTimer, rescan = time.After(s.order.Grace), time.After(retellEvery)
		return tree.tell(seen, s.program)
	}
	killAll := func() {
		if d, ok := children.death(); ok && !ended {
			s.say(answer{Status: &d.status})
			ended = true
		}
		tree.finish(s.program, children.empty)
		killTimer = nil
	}
	onRequest := func(why answer) {
		if !ended { // an exit status that has been reported is final
			s.say(why)
		}
		if ending {
			killAll()
			return
		}
		terminate()
	}
	for {
		select {
		case d := <-children.ended:
			s.say(answer{Status: &d.status})
			ended, timeout = true, nil
			if !d.alone && !ending {
				leftoverTimer = time.After(min(s.order.Grace, patience))
			}
		case <-leftoverTimer:
			if !ending {
				s.say(answer{Leftovers: terminate()})
			}
		case <-timeout:
			timeout = nil
			onRequest(answer{Ended: true, TimedOut: true})
		case _, somebody := <-requests:
			if !somebody {
				tree.finish(s.program, children.empty)
				return
			}
			onRequest(answer{Ended: true})
		case <-endRequests:
			onRequest(answer{Ended: true})
		case <-killTimer:
			killAll()
		case <-rescan: // processes that were just being forked at the last SIGTERM
			rescan = time.After(retellEvery)
			tree.retell(seen)
		case stop := <-children.stopped:
			s.onThread(func() { letGo(stop) })
		case <-children.empty:
			if d, ok := children.death(); ok && !ended {
				s.say(answer{Status: &d.status})
			}
			tree.leave(s.program)
			return
		}
	}
}

// processTree signals all descendants of a program.
type containing interface {
	tell(h hunt, program int) int // sends SIGTERM to all, and returns their number
	retell(h hunt) int            // sends SIGTERM to those that appeared since
	finish(program int, empty <-chan struct{})
	leave(program int)
}

// children are the processes that the supervisor waits for: the program, and orphans adopted from it.
type children struct {
	program int
	ended   chan death
	stopped chan stop
	empty   chan struct{} // closed when there are none
}

func newChildren() *children {
	return &children{ended: make(chan death, 1), stopped: make(chan stop), empty: make(chan struct{})}
}

// programExit is the exit status of the program, and whether it was the last child.
type death struct {
	status syscall.WaitStatus
	alone  bool
}

// tracedStop is a child that has stopped in a ptrace stop, because it asked to be traced by its parent.
type stop struct {
	pid    int
	signal syscall.Signal
}

// takeExit returns the program's exit, if it is known and has not been taken yet.
func (c *children) death() (death, bool) {
	select {
	case d := <-c.ended:
		return d, true
	default:
		return death{}, false
	}
}

// reap collects all children until there are none.
func (c *children) reap() {
	defer close(c.empty)
	var program *death
	for drained := 0; ; drained++ {
		var status syscall.WaitStatus
		flags := 0
		if program != nil {
			flags = syscall.WNOHANG // only to see whether children are left
		}
		pid, err := syscall.Wait4(-1, &status, flags, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && pid > 0 && status.Stopped() {
			c.stopped <- stop{pid, status.StopSignal()}
			continue
		}
		if program != nil && pid > 0 && drained < 1000 { // bounded, as a program may leave any number of zombies
			continue
		}
		if program != nil {
			program.alone = err != nil
			c.ended <- *program
			program = nil
		}
		switch {
		case err != nil:
			return
		case pid == c.program:
			program, drained = &death{status: status}, 0
		}
	}
}
