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

// A supervisor is this very program, started again under a name of its own. Whoever imports the package
// can therefore run tasks with no other program at hand. What packages do that begin before this one, they
// do in supervisors too.
func init() {
	if len(os.Args) != 2 || os.Args[0] != supervisorName {
		return
	}
	runtime.LockOSThread() // what a thread gives up of its powers, the program must be started by
	supervisor{control: os.NewFile(orderFD, "control")}.run()
	os.Exit(0) // as process 1: and everything goes
}

type supervisor struct {
	control *os.File
	order   order
	program int // its pid
}

func (s supervisor) run() {
	// A signal that is ignored would be ignored by the program too, so those that people and programs send
	// are taken and dropped, but for the one that asks us to end.
	dropped, asked := make(chan os.Signal, 1), make(chan os.Signal, 2)
	signal.Notify(asked, syscall.SIGTERM)
	signal.Notify(dropped, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGXCPU, syscall.SIGXFSZ)
	if closeOnExec() != nil {
		return // without a word: whoever waits for one will know
	}
	decoder := json.NewDecoder(s.control)
	if decoder.Decode(&s.order) != nil {
		return
	}
	if err := s.order.Way.enter(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	if err := stand(string(s.order.Dir)); err != nil {
		s.say(answer{Failed: err.Error()})
		return
	}
	if err := s.order.Way.settle(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	gatherThreads()
	s.say(answer{Starting: true})
	if cannot := s.start(); cannot != nil {
		s.say(*cannot)
		return
	}
	// Who reads or writes at the other end must notice when the program has closed its streams.
	for fd := range 3 {
		_ = syscall.Close(streamFD + fd)
	}
	s.say(answer{Running: true})
	s.oversee(s.requests(decoder.Buffered()), asked)
	s.say(answer{Gone: true})
}

// say tells whoever waits. When nobody does, that is noticed elsewhere.
func (s supervisor) say(a answer) {
	if data, err := json.Marshal(a); err == nil {
		_, _ = s.control.Write(data)
	}
}

// stand goes to a directory by its name and makes sure that it is the open one: links on the way there may
// have changed since it was opened.
func stand(dir string) error {
	open, err := os.NewFile(dirFD, "dir").Stat()
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
func (s *supervisor) start() *answer {
	argv, env := inWords(s.order.Argv), inWords(s.order.Env)
	path, err := locate(env, argv[0])
	if err == nil {
		attr := &syscall.ProcAttr{Env: env, Files: []uintptr{streamFD, streamFD + 1, streamFD + 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
		if s.order.Terminal {
			attr.Sys.Setctty, attr.Sys.Ctty = true, 0
		}
		if s.order.CgroupFD > 0 {
			s.order.Limits.Cgroup = os.NewFile(uintptr(s.order.CgroupFD), "cgroup.procs")
		}
		if s.order.Limits.Processes > 0 {
			s.order.Limits.others = otherSupervisors()
		}
		if s.order.Limits.asked() {
			s.program, err = startLimited(path, argv, attr, s.order.Way, s.order.Limits)
		} else {
			s.program, err = syscall.ForkExec(path, argv, attr)
		}
	}
	var limit *limitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return &answer{Failed: err.Error()}
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOTTY):
		return &answer{Failed: err.Error()}
	case errors.Is(err, errNotOnPath) || errors.Is(err, os.ErrNotExist):
		return &answer{Cannot: err.Error(), Code: 127}
	}
	return &answer{Cannot: err.Error(), Code: 126}
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
func (s supervisor) oversee(requests <-chan struct{}, asked <-chan os.Signal) {
	children := children{program: s.program, ended: make(chan death, 1), stopped: make(chan stop), empty: make(chan struct{})}
	go children.reap()

	var due, settled, late, retell <-chan time.Time
	if s.order.Timeout > 0 {
		due = time.After(s.order.Timeout)
	}
	ended, ending := false, false // the program; everything
	told := newHunt()
	end := func() (left int) {
		ending = true
		late, retell = time.After(s.order.Grace), time.After(retellEvery)
		return s.order.Way.tell(told, s.program)
	}
	finish := func() {
		if d, is := children.death(); is && !ended {
			s.say(answer{Status: &d.status})
			ended = true
		}
		s.order.Way.finish(s.program, children.empty)
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
				s.order.Way.finish(s.program, children.empty)
				return
			}
			wanted(answer{Ended: true})
		case <-asked:
			wanted(answer{Ended: true})
		case <-late:
			finish()
		case <-retell: // who was only just being born when the others were told
			retell = time.After(retellEvery)
			s.order.Way.retell(told)
		case stop := <-children.stopped:
			letGo(stop)
		case <-children.empty:
			if d, is := children.death(); is && !ended {
				s.say(answer{Status: &d.status})
			}
			s.order.Way.leave(s.program)
			return
		}
	}
}

// children are ours to wait for: the program, and what others left to us.
type children struct {
	program int
	ended   chan death
	stopped chan stop
	empty   chan struct{} // closed when there are none
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
func (c children) death() (death, bool) {
	select {
	case d := <-c.ended:
		return d, true
	default:
		return death{}, false
	}
}

// reap collects every child until there is none.
func (c children) reap() {
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
