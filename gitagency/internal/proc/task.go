package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Task is a program that is run together with everything it starts, however far that goes away from it:
// when Run returns, none of it is left. A supervisor process stands between us and the program and outlives
// us by an instant, so that this also holds when we are killed.
type Task struct {
	Argv []string // required; a name is looked up on the PATH of Env, in directories with absolute names
	Dir  *os.File // required: an open directory, in which the program begins
	Env  []string // all of the program's environment

	// What is a *os.File is the program's own; anything else is copied through a pipe, in a goroutine that
	// nobody waits for if it is the input. Nil is nothing at all.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Terminal gives the program a terminal of its own, connected to Stdin, which is the one that a person
	// sits at, and to those of Stdout and Stderr that are terminals too.
	Terminal bool

	// Running is called once the program runs; nil is nobody.
	Running func()

	// Handed is called in a room once its keeper has what is to be held, before the program can run; nil is
	// nobody.
	Handed func()

	// Hold is kept open for as long as anything of the program is left.
	Hold []*os.File

	// Label is seen by whoever lists processes, and found by Supervisors.
	Label string

	// Timeout is how long the program may run, also while we are stopped; zero or less is for ever.
	Timeout time.Duration

	// Grace is the time between SIGTERM and SIGKILL for what does not end by itself.
	Grace time.Duration

	// Hurry, once it is closed, ends a grace that has begun. Nil never does.
	Hurry <-chan struct{}

	// Limits bound the program. One that cannot be set keeps it from running.
	Limits Limits

	within []Containment // for tests: only these are tried
	room   *Room         // nil is none
}

// Containment is how everything that a program starts is held together.
type Containment string

// The ways to contain, the best first.
const (
	// PIDNamespace: the supervisor is process 1 of a namespace, with which the kernel ends everything.
	PIDNamespace Containment = "pid-namespace"
	// Subreaper: the supervisor inherits what loses its parent, and looks for it until there is none. A
	// program that kills its supervisor on purpose gets away.
	Subreaper Containment = "subreaper"
	// ProcessGroup: what the program starts, unless it leaves the group. Where there is nothing better.
	ProcessGroup Containment = "process-group"
)

// Ending is how a task ended.
type Ending struct {
	Exit      int            // the exit status of the program; 128+n when signal n killed it
	Signal    syscall.Signal // that n, else 0
	Leftovers int            // processes that the program left behind when it ended by itself
	Stopped   bool           // it was ended by somebody who sent SIGTERM to its supervisor
	Contained Containment
}

// CannotRunError is a program that is not there (127) or cannot be executed (126), in the terms of env(1).
type CannotRunError struct {
	Program string
	Code    int
	Err     error
}

func (e *CannotRunError) Error() string { return fmt.Sprintf("%s: %v", e.Program, e.Err) }
func (e *CannotRunError) Unwrap() error { return e.Err }

// What became of a program that did not end by itself.
var (
	ErrTimeout = errors.New("timed out")
	// ErrLost: the supervisor died where only it could have ended everything.
	ErrLost = errors.New("its supervisor was killed; what it started may still run")
)

// OutputError is output that could not be passed on, of a program that ran.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "pass output on: " + e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Run runs the task to its end. When ctx ends first, everything gets SIGTERM and, after the grace, SIGKILL,
// and the error wraps context.Cause; it is ErrTimeout when the time was up. What became of the program is
// returned with these, with ErrLost and with an *OutputError. Other errors mean that it never ran: a
// *CannotRunError, else a *NotStartedError.
func (t Task) Run(ctx context.Context) (Ending, error) {
	if len(t.Argv) == 0 || t.Dir == nil {
		return Ending{}, &NotStartedError{errors.New("no program named, or nowhere to run it")}
	}
	if t.Terminal {
		return t.runAtTerminal(ctx)
	}
	return t.runSomehow(ctx)
}

// runSomehow runs the task in the best containment that is to be had.
func (t Task) runSomehow(ctx context.Context) (Ending, error) {
	ways := t.within
	switch {
	case t.room != nil:
		ways = []Containment{PIDNamespace} // which the room is
	case ways == nil:
		ways = containments()
	}
	var refusals []error
	for _, way := range ways {
		if err := context.Cause(ctx); err != nil {
			return Ending{}, &NotStartedError{err}
		}
		ending, err := t.run(ctx, way)
		var refused *refusedError
		if !errors.As(err, &refused) {
			return ending, err
		}
		refusals = append(refusals, refused)
	}
	return Ending{}, &NotStartedError{errors.Join(refusals...)}
}

// refusedError is a containment that this machine does not give; nothing has been run.
type refusedError struct {
	way Containment
	err error
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %v", e.way, e.err) }

// order is what the supervisor is told to do, and answer what it says became of that, each one JSON
// document. After the order, one further byte asks it to end everything in an orderly way; the end of the
// connection means that nobody waits any more.
type order struct {
	Argv     [][]byte      `json:"argv"` // words are bytes, which a JSON string need not be able to hold
	Env      [][]byte      `json:"env"`
	Dir      []byte        `json:"dir"` // by name; it must be the open one
	Terminal bool          `json:"terminal"`
	Timeout  time.Duration `json:"timeout"`
	Grace    time.Duration `json:"grace"`
	Way      Containment   `json:"way"`
	Limits   Limits        `json:"limits"`
	CgroupAt int           `json:"cgroup_at,omitempty"` // which of the descriptors that were handed over it is
}

type answer struct {
	Refused   string              `json:"refused,omitempty"`  // why there is no such containment
	Cannot    string              `json:"cannot,omitempty"`   // why the program cannot be run
	Code      int                 `json:"code,omitempty"`     // 126 or 127, with Cannot
	Failed    string              `json:"failed,omitempty"`   // what else went wrong before it ran
	Starting  bool                `json:"starting,omitempty"` // from here on it may have run
	Running   bool                `json:"running,omitempty"`
	Ended     bool                `json:"ended,omitempty"`    // the supervisor was asked to end it
	TimedOut  bool                `json:"timedout,omitempty"` // the time was up
	Status    *syscall.WaitStatus `json:"status,omitempty"`   // of the program, once it has ended
	Leftovers int                 `json:"leftovers,omitempty"`
	Gone      bool                `json:"gone,omitempty"` // nothing is left
}

// The descriptors of a supervisor. Its own three lead nowhere: it shares its program with whoever imports
// this package, and what that prints when it begins is not for the ears of whoever reads the output.
const (
	orderFD  = 3
	dirFD    = 4
	streamFD = 5 // and the two after it: what the program gets as 0, 1 and 2
)

func (t Task) run(ctx context.Context, way Containment) (_ Ending, err error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return Ending{}, &NotStartedError{err}
	}
	defer ours.Close()
	pipes, err := t.connect()
	if err != nil {
		return Ending{}, &NotStartedError{errors.Join(err, theirs.Close())}
	}
	files := slices.Concat([]*os.File{theirs, t.Dir}, pipes.child[:], t.Hold, t.Limits.files())
	above, err := t.handOver(way, files)
	_ = theirs.Close()
	pipes.handOver()
	if err != nil {
		pipes.abandon()
		return Ending{}, err
	}
	if t.Handed != nil && t.room != nil {
		t.Handed()
	}
	what := order{
		Argv: inBytes(t.Argv), Env: inBytes(t.Env), Dir: []byte(t.Dir.Name()),
		Terminal: t.Terminal, Timeout: t.Timeout, Grace: t.Grace, Way: way, Limits: t.Limits,
	}
	if t.Limits.Cgroup != nil {
		what.CgroupAt = len(files) - 1
	}
	order, err := json.Marshal(what)
	if err == nil {
		_, err = ours.Write(order) // a supervisor that is gone already has said why, or is missed below
	}
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watch(ctx, above, ours, finished) })
	last, readErr := readAnswers(ours, func() {
		pipes.begin()
		if t.Running != nil {
			t.Running()
		}
	})
	waitErr := above.wait() // when it is gone, all is gone
	close(finished)
	watching.Wait()
	copyErr := pipes.finish()
	return t.judge(ctx, above, last, errors.Join(err, readErr, waitErr), copyErr)
}

// handOver gives what a program needs to the one who will supervise it.
func (t Task) handOver(way Containment, files []*os.File) (*above, error) {
	if t.room != nil {
		if err := t.room.handOver(files); err != nil {
			return nil, &NotStartedError{err}
		}
		return &above{way: way, room: t.room}, nil
	}
	cmd := &exec.Cmd{
		// Few threads are enough, and fewer can be refused.
		Path: self(), Args: []string{supervisorName, t.Label}, Env: []string{"GOMAXPROCS=2"}, Dir: "/",
		ExtraFiles: files, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err := way.ask(cmd.SysProcAttr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, &refusedError{way, err}
	}
	return &above{way: way, cmd: cmd}, nil
}

// above is who supervises a program: a process of ours, or somebody in a room.
type above struct {
	way  Containment
	cmd  *exec.Cmd
	room *Room
}

// wake wakes a supervisor that its program may have stopped.
func (a *above) wake() {
	if a.cmd != nil && a.way != PIDNamespace {
		_ = a.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// end ends a supervisor that does not do what it is asked to, where the kernel then does its work.
func (a *above) end() {
	if a.cmd != nil && a.way == PIDNamespace {
		_ = a.cmd.Process.Kill()
	}
}

// wait waits for the process to be gone. One in a room has gone when it has no more to say.
func (a *above) wait() error {
	if a.cmd == nil {
		return nil
	}
	return ignoreExit(a.cmd.Wait())
}

// killed is by what signal the supervisor was ended, which the program then was too.
func (a *above) killed() syscall.Signal {
	if a.cmd != nil {
		if ws, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal()
		}
	}
	return syscall.SIGKILL
}

// leaks reports whether something of the program may have outlived its supervisor.
func (a *above) leaks() bool {
	if a.room != nil {
		return !a.room.ended(time.Second) // all of a room goes together
	}
	return a.way == Subreaper
}

func (a *above) String() string {
	if a.cmd == nil {
		return "the room has ended"
	}
	return a.cmd.ProcessState.String()
}

// watch asks the supervisor to end everything once ctx has ended. One that does not within any reason is
// killed, if the kernel then does its work; else it is the only one who can, however long it takes.
func (t Task) watch(ctx context.Context, above *above, control *os.File, finished <-chan struct{}) {
	var wake <-chan time.Time
	if above.way != PIDNamespace { // where the program can stop its supervisor
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		wake = ticker.C
	}
	ended, hurry := ctx.Done(), (<-chan struct{})(nil)
	var late <-chan time.Time
	for {
		select {
		case <-finished:
			return
		case <-ended:
			_, _ = control.Write([]byte{0}) // an error means that it is ending anyway
			ended, hurry = nil, t.Hurry
			late = time.After(t.Grace + 10*time.Second)
		case <-hurry:
			_, _ = control.Write([]byte{0})
			hurry = nil
		case <-wake:
			above.wake()
		case <-late:
			above.end()
		}
	}
}

// judge puts together what is known of how a task ended.
func (t Task) judge(ctx context.Context, above *above, last answer, runErr, copyErr error) (Ending, error) {
	ending := Ending{Contained: above.way, Leftovers: last.Leftovers}
	switch {
	case last.Refused != "":
		return Ending{}, &refusedError{above.way, errors.New(last.Refused)}
	case last.Cannot != "":
		return ending, &CannotRunError{Program: t.Argv[0], Code: last.Code, Err: errors.New(last.Cannot)}
	case last.Failed != "":
		return ending, &NotStartedError{errors.New(last.Failed)}
	case !last.Starting && context.Cause(ctx) != nil:
		return ending, &NotStartedError{context.Cause(ctx)}
	case !last.Starting:
		return ending, &NotStartedError{errors.Join(fmt.Errorf("the supervisor did not begin: %v", above), runErr)}
	case last.Status != nil && last.Status.Signaled():
		ending.Signal = last.Status.Signal()
		ending.Exit = 128 + int(ending.Signal)
	case last.Status != nil:
		ending.Exit = last.Status.ExitStatus()
	default: // the supervisor was killed, and with it everything else
		ending.Signal = above.killed()
		ending.Exit = 128 + int(ending.Signal)
	}
	var err error
	switch cause := context.Cause(ctx); {
	case last.TimedOut:
		err = ErrTimeout
	case cause != nil && (last.Ended || last.Status == nil):
		err = cause
	default:
		ending.Stopped = last.Ended
	}
	if !last.Gone && above.leaks() {
		err = errors.Join(err, ErrLost, runErr)
	}
	if copyErr != nil {
		err = errors.Join(err, &OutputError{copyErr})
	}
	return ending, err
}

func inBytes(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}

func inWords(all [][]byte) []string {
	words := make([]string, len(all))
	for i, b := range all {
		words[i] = string(b)
	}
	return words
}

// readAnswers reads until the supervisor has no more to say, and returns all of it in one.
func readAnswers(from io.Reader, running func()) (all answer, err error) {
	decoder := json.NewDecoder(from)
	for {
		before := all.Running
		if err := decoder.Decode(&all); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				return all, nil
			}
			return all, err
		}
		if all.Running && !before {
			running()
		}
	}
}

// ignoreExit: how a supervisor exits says nothing.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // nobody else's child shall get these
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervised"), nil
}

// supervisorName is what a supervisor calls itself where processes are listed.
const supervisorName = "git-agency-supervisor"

// Stop asks the supervisor of a task to end it: in an orderly way, and when asked again, at once. That it
// is gone already is fine.
func Stop(supervisor int) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // it may have been stopped
		if err := syscall.Kill(supervisor, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
