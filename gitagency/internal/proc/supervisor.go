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

	"github.com/git-agency/git-agency/gitagency/internal/terminal"
)

// WallBuilder builds the walls around programs. Only the WallBuilder can read a plan.
type WallBuilder struct {
	// Prepare does work that needs no plan in advance, on any thread. It may be nil.
	Prepare func()
	// Apply builds the walls of a namespace, as its process 1, before anything runs in it.
	Apply func(plan []byte) error
	// Restrict adds the restrictions of a single program, on the thread that forks it. inRoot says that the thread has another root
	// directory, by Task.Root.
	Restrict func(plan []byte, inRoot bool) error
	// Dismantle, called when nothing runs in a namespace any more, removes what the kernel would be slow to clean up. It
	// may be nil.
	Dismantle func(plan []byte) error
}

// Supervise runs the supervisor that this process was started as, and does not return; in any other process it does
// nothing. A supervisor is the same executable, started again under another argv[0], so that no second program has to be
// installed. Call it in an init function. Packages initialised earlier are initialised in supervisors as well.
func Supervise(b WallBuilder) {
	if len(os.Args) < 2 || os.Args[0] != supervisorName {
		return
	}
	switch {
	case len(os.Args) == 2:
		runtime.LockOSThread() // the program must be forked by the thread that dropped its capabilities
		if endRequests, ok := prepareProcess(); ok {
			newInheritedSupervisor().supervise(endRequests)
		}
	case os.Args[2] == roleInit:
		onOtherThread(func() { runInit(b) })
	case os.Args[2] == roleSupervisor:
		onOtherThread(func() {
			if endRequests, ok := prepareProcess(); ok {
				namespaceSupervisor(b).supervise(endRequests)
			}
		})
	}
	os.Exit(0) // when this is process 1, the kernel kills everything else
}

// RunHelper calls run with the arguments and exits, if this process was started by StartHelper under this name; in
// any other process it does nothing. Call it in an init function.
func RunHelper(name string, run func(args []string)) {
	if len(os.Args) > 1 && os.Args[0] == name {
		onOtherThread(func() { run(os.Args[1:]) })
		os.Exit(0)
	}
}

// onOtherThread runs do on another thread than the main one. Init functions are locked to the main thread, and waking
// a locked goroutine takes a switch between threads.
func onOtherThread(do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	<-done
}

// Roles of a supervisor other than the default, one with a single program.
const (
	roleInit       = "keeper" // process 1 of a namespace
	roleSupervisor = "inside" // started by an init process, for one program among several
)

// supervisor supervises one program.
type supervisor struct {
	control     *os.File
	dir         *os.File      // initial directory of the program
	streams     [3]int        // the program's 0, 1 and 2; as numbers, because os.File may change O_NONBLOCK for others
	fdAt        func(int) int // descriptor number of the n-th file handed over; the caller closes it
	order       supervisorOrder
	restrict    func(inRoot bool) error // applies the walls of the program; nil: none
	startThread chan func()             // executes functions on the thread that forked the program, if there are walls
	programPID  int                     // pid
	terminal    *terminal.Controlling   // of our session and the program; nil: none
}

// newInheritedSupervisor returns a supervisor that uses the descriptors inherited by this process.
func newInheritedSupervisor() supervisor {
	s := supervisor{control: os.NewFile(controlFD, "control"), dir: os.NewFile(dirFD, "dir"), fdAt: func(n int) int { return controlFD + n }}
	for i := range s.streams {
		s.streams[i] = streamFD + i
	}
	return s
}

// prepareProcess sets up the signals and descriptors of a supervisor. A value on endRequests is a request to end.
func prepareProcess() (endRequests <-chan os.Signal, ok bool) {
	requests := make(chan os.Signal, 2)
	handleSignals(requests)
	return requests, setCloseOnExec() == nil // without a message: the parent sees the connection end
}

// handleSignals delivers SIGTERM, the request to end, to requests and drops all other signals that people and programs
// send. They are caught rather than ignored, because the program would inherit an ignored signal.
func handleSignals(requests chan<- os.Signal) {
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
	if s.restrict != nil {
		s.order.Containment = Subreaper // whatever was ordered: the init process is process 1 already
	}
	if err := s.order.Containment.setup(); err != nil {
		s.report(supervisorReport{ContainmentError: err.Error()})
		return
	}
	if err := s.chdirVerified(); err != nil {
		s.report(supervisorReport{StartError: err.Error()})
		return
	}
	if err := s.order.Containment.dropCapabilities(); err != nil {
		s.report(supervisorReport{ContainmentError: err.Error()})
		return
	}
	defer func() { s.releaseTerminal() }()
	preallocateThreads()
	children := newChildren()
	if s.startAndReport(func(start func() (int, error)) (pid int, err error) {
		children.programPID, err = start()
		return children.programPID, err
	}) {
		go children.reap()
		s.superviseUntilGone(s.order.Containment, children, s.readRequests(decoder.Buffered()), endRequests)
		s.report(supervisorReport{AllGone: true})
	}
}

// startAndReport starts the program through record, which has to remember its pid, and reports the success or the error.
func (s *supervisor) startAndReport(record func(start func() (int, error)) (int, error)) bool {
	s.report(supervisorReport{Starting: true})
	if failure := s.startProgram(record); failure != nil {
		s.report(*failure)
		if s.startThread != nil {
			close(s.startThread)
		}
		return false
	}
	// The reader or writer at the other end must notice when the program has closed its streams.
	for _, fd := range s.streams {
		_ = syscall.Close(fd)
	}
	s.report(supervisorReport{Running: true})
	return true
}

// report sends a report to the parent. A parent that is gone is detected elsewhere.
func (s supervisor) report(a supervisorReport) {
	if data, err := json.Marshal(a); err == nil {
		_, _ = s.control.Write(data)
	}
}

// chdirVerified changes to a directory by its name and checks that it is the one that is open: symlinks on the way may
// have changed since it was opened. On a thread that enterRoot has separated it changes that of the thread.
func (s supervisor) chdirVerified() error {
	dir := string(s.order.Dir)
	open, err := s.dir.Stat()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if here, err := os.Stat("."); err != nil || !os.SameFile(open, here) {
		return errors.Join(errors.New(dir+" was replaced by another directory"), err)
	}
	return nil
}

// preallocateThreads makes the Go runtime create the threads that a supervisor may need: once a program has used up its
// user's process limit, no thread can be created, and just then the supervisor has to act.
func preallocateThreads() {
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
func (s *supervisor) startProgram(record func(start func() (int, error)) (int, error)) *supervisorReport {
	argv, env := toStrings(s.order.Argv), toStrings(s.order.Env)
	var path string
	var wallErr, err error
	switch {
	case len(s.order.Root) == 0:
		path, err = resolveProgram(env, argv[0])
	case s.restrict == nil:
		return &supervisorReport{StartError: "another root directory needs walls"}
	}
	if err == nil {
		attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
		for _, fd := range s.streams {
			attr.Files = append(attr.Files, uintptr(fd))
		}
		if s.order.Terminal {
			if err := s.takeTerminal(attr.Sys); err != nil {
				return &supervisorReport{StartError: err.Error()}
			}
		}
		fork := func() (int, error) { return syscall.ForkExec(path, argv, attr) }
		if limits := s.resolveLimits(); limits.isSet() {
			if limits.Cgroup != nil {
				defer limits.Cgroup.Close()
			}
			fork = func() (int, error) { return forkExecLimited(path, argv, attr, limits) }
		}
		s.programPID, err = record(func() (pid int, err error) {
			if s.restrict == nil {
				return fork()
			}
			s.startThread = make(chan func())
			go runOnLockedThread(s.startThread)
			s.runOnStartThread(func() {
				if len(s.order.Root) > 0 {
					if wallErr = s.enterRoot(); wallErr != nil {
						return
					}
					if path, err = resolveProgram(env, argv[0]); err != nil {
						return
					}
				}
				if wallErr = s.restrict(len(s.order.Root) > 0); wallErr == nil {
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
		return &supervisorReport{StartError: wallErr.Error()}
	case errors.As(err, &limit):
		return &supervisorReport{StartError: err.Error()}
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOTTY):
		return &supervisorReport{StartError: err.Error()}
	case errors.Is(err, errNotOnPath) || errors.Is(err, os.ErrNotExist):
		return &supervisorReport{ExecError: err.Error(), ExecCode: 127}
	}
	return &supervisorReport{ExecError: err.Error(), ExecCode: 126}
}

// resolveLimits returns the ordered limits, completed with values that must be read before the walls are in force.
func (s *supervisor) resolveLimits() Limits {
	l := s.order.Limits
	l.inUserNamespace = s.restrict != nil || s.order.Containment == PIDNamespace // every program in a namespace has restrict set
	if s.order.CgroupIndex > 0 {
		l.Cgroup = os.NewFile(uintptr(s.fdAt(s.order.CgroupIndex)), "cgroup.procs")
	}
	if l.Processes > 0 {
		l.otherThreads = countOtherSupervisorThreads()
	}
	return l
}

// runOnLockedThread executes functions on a dedicated thread, so that dropped capabilities affect no other goroutine.
// It is never the main thread, which represents this process in /proc, and it lives as long as the program, which may
// have asked to be traced by it.
func runOnLockedThread(do <-chan func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for f := range do {
		f()
	}
}

// runOnStartThread runs do on the thread that forks the program.
func (s *supervisor) runOnStartThread(do func()) {
	if s.startThread == nil {
		do()
		return
	}
	done := make(chan struct{})
	s.startThread <- func() { defer close(done); do() }
	<-done
}

var errNotOnPath = errors.New("not found on PATH")

// resolveProgram finds a program as env(1) does, with two differences: it skips relative elements of PATH, whose content
// depends on the current directory; and it never runs a shell for a file that the kernel does not execute.
func resolveProgram(env []string, program string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	found := errNotOnPath
	for path := range pathCandidates(env, program) {
		fi, err := os.Stat(path)
		switch {
		case err != nil || fi.IsDir():
		case checkExecutable(path) == nil:
			return path, nil
		default:
			found = syscall.EACCES
		}
	}
	return "", found
}

// readRequests returns a channel that gets each request of the parent, and is closed when the parent is gone.
func (s supervisor) readRequests(buffered io.Reader) <-chan supervisorRequest {
	requests := make(chan supervisorRequest)
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
					requests <- supervisorRequest(buffer[0])
				}
			}
		}
	}()
	return requests
}
