package proc

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A supervisor is this very program, started again under a name of its own. Whoever imports the package
// can therefore run tasks with no other program at hand; for that, it has to look at the name before
// anything else happens.
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
	if closeOnExec() != nil {
		return // without a word: whoever waits for one will know
	}
	decoder := json.NewDecoder(s.control)
	if decoder.Decode(&s.order) != nil {
		return
	}
	// A signal that is ignored would be ignored by the program too, so all are taken and dropped, but for
	// those that cannot be and the one that asks us to end.
	dropped, asked := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE)
	signal.Notify(asked, syscall.SIGTERM)

	if err := s.order.Way.enter(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	if err := stand(s.order.Dir); err != nil {
		s.say(answer{Failed: err.Error()})
		return
	}
	if err := s.order.Way.settle(); err != nil {
		s.say(answer{Refused: err.Error()})
		return
	}
	if cannot := s.start(); cannot != nil {
		s.say(*cannot)
		return
	}
	if err := letGo(); err != nil {
		s.say(answer{Failed: err.Error()})
		return
	}
	s.say(answer{Running: true})
	s.oversee(s.requests(decoder.Buffered()), asked)
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

// start starts the program, or says why that cannot be.
func (s *supervisor) start() *answer {
	path, err := locate(s.order.Env, s.order.Argv[0])
	if err == nil {
		attr := &syscall.ProcAttr{Env: s.order.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
		if s.order.Terminal {
			attr.Sys.Setctty, attr.Sys.Ctty = true, 0
		}
		s.program, err = syscall.ForkExec(path, s.order.Argv, attr)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOTTY):
		return &answer{Failed: err.Error()}
	case errors.Is(err, os.ErrNotExist):
		return &answer{Cannot: err.Error(), Code: 127}
	}
	return &answer{Cannot: err.Error(), Code: 126}
}

// locate finds a program as env(1) would, with two differences: directories on PATH with relative names
// are passed over, as they mean whatever somebody puts where we stand; and no shell is ever asked to make
// sense of a file that the kernel does not execute.
func locate(env []string, program string) (string, error) {
	if program == "" {
		return "", syscall.ENOENT
	}
	if strings.Contains(program, "/") {
		return program, nil
	}
	found := error(syscall.ENOENT)
	for _, dir := range filepath.SplitList(Variable(env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, program)
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

// letGo closes the program's streams on our side: who reads or writes at the other end must notice when
// the program has closed them, and nothing of ours belongs there.
func letGo() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := duplicate(int(null.Fd()), fd); err != nil {
			return err
		}
	}
	return null.Close()
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

// oversee waits until the program and everything that came of it is gone, and sees to it that this
// happens: SIGTERM to all when the program has ended or somebody wants it to, SIGKILL when that did not help.
func (s supervisor) oversee(requests <-chan struct{}, asked <-chan os.Signal) {
	ended, empty := make(chan death, 1), make(chan struct{})
	go s.reap(ended, empty)

	var late, settled <-chan time.Time
	ending := false
	end := func() (left int) {
		if ending {
			return 0
		}
		ending = true
		if s.order.Grace <= 0 {
			left = s.order.Way.signal(s.program, syscall.SIGKILL)
		} else {
			left = s.order.Way.signal(s.program, syscall.SIGTERM)
			s.order.Way.signal(s.program, syscall.SIGCONT) // what is stopped would never hear of it
		}
		late = time.After(s.order.Grace)
		return left
	}
	for {
		select {
		case d := <-ended:
			s.say(answer{Status: &d.status})
			if !d.alone && !ending {
				settled = time.After(min(s.order.Grace, patience))
			}
		case <-settled:
			if !ending {
				s.say(answer{Leftovers: end()})
			}
		case _, somebody := <-requests:
			if !somebody {
				s.order.Way.finish(s.program, empty)
				return
			}
			s.say(answer{Ended: true})
			end()
		case <-asked:
			s.say(answer{Ended: true})
			if ending { // for the second time: somebody has waited long enough
				s.sayEnded(ended)
				s.order.Way.finish(s.program, empty)
			}
			end()
		case <-late:
			s.sayEnded(ended)
			s.order.Way.finish(s.program, empty)
			late = nil
		case <-empty:
			s.sayEnded(ended)
			s.order.Way.leave(s.program)
			return
		}
	}
}

// sayEnded passes on how the program ended, if that is known and was not said yet.
func (s supervisor) sayEnded(ended <-chan death) {
	select {
	case d := <-ended:
		s.say(answer{Status: &d.status})
	default:
	}
}

// death is how the program ended, and whether it was the last.
type death struct {
	status syscall.WaitStatus
	alone  bool
}

// reap collects every child, also those that others left to us, until there is none.
func (s supervisor) reap(ended chan<- death, empty chan<- struct{}) {
	defer close(empty)
	var program *death
	for {
		var status syscall.WaitStatus
		how := 0
		if program != nil {
			how = syscall.WNOHANG // only to see whether anybody is left
		}
		pid, err := syscall.Wait4(-1, &status, how, nil)
		if errors.Is(err, syscall.EINTR) || program != nil && pid > 0 {
			continue
		}
		if program != nil {
			program.alone = err != nil
			ended <- *program
			program = nil
		}
		switch {
		case err != nil:
			return
		case pid == s.program:
			program = &death{status: status}
		}
	}
}
