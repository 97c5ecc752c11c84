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

// Builder builds walls around what runs: a plan says which, and only the builder can read it.
type Builder struct {
	// Ready does beforehand, on any thread, what needs no plan. It may be nil.
	Ready func()
	// Raise builds what surrounds a room, as process 1 of its namespaces, before anything runs in it.
	Raise func(plan []byte) error
	// Shut puts the rest around one program, on the thread that will become it.
	Shut func(plan []byte) error
	// Clear takes down, when nothing runs in a room any more, what the kernel would take its time for. It
	// may be nil.
	Clear func(plan []byte) error
}

// Supervise makes of this process what it was started as, and does not return, if that is a supervisor: a
// supervisor is the program that imports this package, started again under a name of its own, so that no
// other program need be at hand. It belongs into an init function: what packages do that begin before it,
// they do in supervisors too.
func Supervise(b Builder) {
	if len(os.Args) < 2 || os.Args[0] != supervisorName {
		return
	}
	switch {
	case len(os.Args) == 2:
		runtime.LockOSThread() // what a thread gives up of its powers, the program must be started by
		if asked, ok := prepare(); ok {
			inherited().supervise(asked)
		}
	case os.Args[2] == roleKeeper:
		elsewhere(func() { keep(b) })
	case os.Args[2] == roleInside:
		elsewhere(func() {
			if asked, ok := prepare(); ok {
				inside(b).supervise(asked)
			}
		})
	}
	os.Exit(0) // as process 1: and everything goes
}

// elsewhere does something on any thread. To the one that packages are initialised on they are bound, and whoever
// is bound to a thread is woken by way of another.
func elsewhere(do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	<-done
}

// What a supervisor can be besides one that has a single program to itself.
const (
	roleKeeper = "keeper" // process 1 of a room
	roleInside = "inside" // started by a keeper, for one program among several
)

// supervisor is what stands above one program.
type supervisor struct {
	control *os.File
	dir     *os.File      // where the program begins
	streams [3]int        // what it gets as 0, 1 and 2; as numbers, for an os.File may change how others wait for them
	at      func(int) int // which descriptor is the n-th that was handed over; whoever asks has to close it
	order   order
	shut    func() error // walls around the program; nil is none
	thread  chan func()  // does what only the thread that started the program can, if there are walls
	program int          // its pid
}

// inherited is a supervisor of what was handed down to this process.
func inherited() supervisor {
	s := supervisor{control: os.NewFile(orderFD, "control"), dir: os.NewFile(dirFD, "dir"), at: func(n int) int { return orderFD + n }}
	for i := range s.streams {
		s.streams[i] = streamFD + i
	}
	return s
}

// prepare makes this process deaf to what is meant for the program, and says when it shall end.
func prepare() (asked <-chan os.Signal, ok bool) {
	ask := make(chan os.Signal, 2)
	heed(ask)
	return ask, closeOnExec() == nil // else without a word: whoever waits for one will know
}

// heed hears the signal that asks us to end, and no other. One that is ignored would be ignored by the program
// too, so those that people and programs send are taken and dropped.
func heed(ask chan<- os.Signal) {
	dropped := make(chan os.Signal, 1)
	signal.Notify(ask, syscall.SIGTERM)
	signal.Notify(dropped, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGXCPU, syscall.SIGXFSZ)
}

// supervise runs a program as the only thing that this process does.
func (s supervisor) supervise(asked <-chan os.Signal) {
	decoder := json.NewDecoder(s.control)
	if decoder.Decode(&s.order) != nil {
		return
	}
	if s.shut != nil {
		s.order.Way = Subreaper // whatever was ordered: a keeper is process 1 already
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
		s.oversee(s.order.Way, children, s.requests(decoder.Buffered()), asked)
		s.say(answer{Gone: true})
	}
}

// begin starts the program, by way of who has to know of it, and says so or why not.
func (s *supervisor) begin(by func(start func() (int, error)) (int, error)) bool {
	s.say(answer{Starting: true})
	if cannot := s.start(by); cannot != nil {
		s.say(*cannot)
		if s.thread != nil {
			close(s.thread)
		}
		return false
	}
	// Who reads or writes at the other end must notice when the program has closed its streams.
	for _, fd := range s.streams {
		_ = syscall.Close(fd)
	}
	s.say(answer{Running: true})
	return true
}

// say tells whoever waits. When nobody does, that is noticed elsewhere.
func (s supervisor) say(a answer) {
	if data, err := json.Marshal(a); err == nil {
		_, _ = s.control.Write(data)
	}
}

// stand goes to a directory by its name and makes sure that it is the open one: links on the way there may
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

// gatherThreads makes the threads that we may come to need: when a program has used up all the processes
// that its user may have, no more are to be had, and that is when we are needed.
func gatherThreads() {
	const enough = 8
	ready, leave := make(chan struct{}), make(chan struct{})
	for range enough {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // one that ended locked would take its thread with it
			ready <- struct{}{}
			<-leave
		}()
	}
	for range enough {
		<-ready
	}
	close(leave)
}

// start starts the program, or says why that cannot be.
func (s *supervisor) start(by func(start func() (int, error)) (int, error)) *answer {
	argv, env := inWords(s.order.Argv), inWords(s.order.Env)
	path, err := locate(env, argv[0])
	var unwalled error
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
		s.program, err = by(func() (pid int, err error) {
			if s.shut == nil {
				return fork()
			}
			s.thread = make(chan func())
			go onThreadOfItsOwn(s.thread)
			s.onThread(func() {
				if unwalled = s.shut(); unwalled == nil {
					pid, err = fork()
				}
			})
			return pid, errors.Join(err, unwalled)
		})
	}
	var limit *limitError
	switch {
	case err == nil:
		return nil
	case unwalled != nil:
		return &answer{Failed: unwalled.Error()}
	case errors.As(err, &limit):
		return &answer{Failed: err.Error()}
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOTTY):
		return &answer{Failed: err.Error()}
	case errors.Is(err, errNotOnPath) || errors.Is(err, os.ErrNotExist):
		return &answer{Cannot: err.Error(), Code: 127}
	}
	return &answer{Cannot: err.Error(), Code: 126}
}

// limits are those that were ordered, with what has to be known before anything is shut in.
func (s *supervisor) limits() Limits {
	l := s.order.Limits
	l.apart = s.shut != nil || s.order.Way == PIDNamespace // in a room, too
	if s.order.CgroupAt > 0 {
		l.Cgroup = os.NewFile(uintptr(s.at(s.order.CgroupAt)), "cgroup.procs")
	}
	if l.Processes > 0 {
		l.others = otherSupervisors()
	}
	return l
}

// onThreadOfItsOwn does things on a thread that nobody else gets, before or after: what it gave up, it gave
// up alone. It is never the first thread, by which others know this process, and lasts as long as the program
// does, which may have asked to be traced by it.
func onThreadOfItsOwn(do <-chan func()) {
	runtime.LockOSThread() // for good: the thread ends with us
	for f := range do {
		f()
	}
}

// onThread does something on the thread that starts the program.
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

// locate finds a program as env(1) would, with two differences: directories on PATH with relative names
// are passed over, as they mean whatever somebody puts where we stand; and no shell is ever asked to make
// sense of a file that the kernel does not execute.
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

// requests is closed when nobody waits for us any more, and sent to when everything shall end.
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

// patience is what is left to others when a program has ended by itself: in "program > >(tee log)" the last
// words are just being written.
const patience = 500 * time.Millisecond

const retellEvery = 50 * time.Millisecond

// oversee waits until the program and everything that came of it is gone, and sees to it that this
// happens: SIGTERM to all when the program has ended, its time is up or somebody wants it to end; SIGKILL
// when that did not help, or somebody wants it a second time.
func (s supervisor) oversee(by containing, children *children, requests <-chan struct{}, asked <-chan os.Signal) {
	if s.thread != nil {
		defer close(s.thread)
	}
	var due, settled, late, retell <-chan time.Time
	if s.order.Timeout > 0 {
		due = time.After(s.order.Timeout)
	}
	ended, ending := false, false // the program; everything
	told := newHunt()
	end := func() (left int) {
		ending = true
		late, retell = time.After(s.order.Grace), time.After(retellEvery)
		return by.tell(told, s.program)
	}
	finish := func() {
		if d, is := children.death(); is && !ended {
			s.say(answer{Status: &d.status})
			ended = true
		}
		by.finish(s.program, children.empty)
		late = nil
	}
	wanted := func(why answer) {
		if !ended { // how it ended by itself is not changed by what comes after
			s.say(why)
		}
		if ending {
			finish()
			return
		}
		end()
	}
	for {
		select {
		case d := <-children.ended:
			s.say(answer{Status: &d.status})
			ended, due = true, nil
			if !d.alone && !ending {
				settled = time.After(min(s.order.Grace, patience))
			}
		case <-settled:
			if !ending {
				s.say(answer{Leftovers: end()})
			}
		case <-due:
			due = nil
			wanted(answer{Ended: true, TimedOut: true})
		case _, somebody := <-requests:
			if !somebody {
				by.finish(s.program, children.empty)
				return
			}
			wanted(answer{Ended: true})
		case <-asked:
			wanted(answer{Ended: true})
		case <-late:
			finish()
		case <-retell: // who was only just being born when the others were told
			retell = time.After(retellEvery)
			by.retell(told)
		case stop := <-children.stopped:
			s.onThread(func() { letGo(stop) })
		case <-children.empty:
			if d, is := children.death(); is && !ended {
				s.say(answer{Status: &d.status})
			}
			by.leave(s.program)
			return
		}
	}
}

// containing is how one reaches everything that came of a program.
type containing interface {
	tell(h hunt, program int) int // asks all to end, and says how many that are
	retell(h hunt) int            // asks those who were not there the last time
	finish(program int, empty <-chan struct{})
	leave(program int)
}

// children are ours to wait for: the program, and what others left to us.
type children struct {
	program int
	ended   chan death
	stopped chan stop
	empty   chan struct{} // closed when there are none
}

func newChildren() *children {
	return &children{ended: make(chan death, 1), stopped: make(chan stop), empty: make(chan struct{})}
}

// death is how the program ended, and whether it was the last.
type death struct {
	status syscall.WaitStatus
	alone  bool
}

// stop is a child that has stopped and waits for us, because it wants to be traced by its parent.
type stop struct {
	pid    int
	signal syscall.Signal
}

// death is how the program ended, if that is known and nobody has heard of it.
func (c *children) death() (death, bool) {
	select {
	case d := <-c.ended:
		return d, true
	default:
		return death{}, false
	}
}

// reap collects every child until there is none.
func (c *children) reap() {
	defer close(c.empty)
	var program *death
	for drained := 0; ; drained++ {
		var status syscall.WaitStatus
		how := 0
		if program != nil {
			how = syscall.WNOHANG // only to see whether anybody is left
		}
		pid, err := syscall.Wait4(-1, &status, how, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && pid > 0 && status.Stopped() {
			c.stopped <- stop{pid, status.StopSignal()}
			continue
		}
		if program != nil && pid > 0 && drained < 1000 { // some leave more behind than anybody could count
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
