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

// Task is a program that is run together with all of its descendants, however detached they are: when Run returns, none
// of them is left. A supervisor process stands between us and the program and outlives us by an instant, so that this
// also holds when we are killed.
type Task struct {
	Argv []string // required; a name is looked up on the PATH of Env, skipping relative elements
	Dir  *os.File // required: open directory in which the program starts
	Env  []string // complete environment of the program

	// An *os.File is passed to the program; any other reader or writer is copied through a pipe, by a goroutine that is
	// not waited for in the case of Stdin. Nil is /dev/null.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Terminal gives the program its own pseudo-terminal, connected to Stdin, which must be the user's terminal, and to
	// those of Stdout and Stderr that are terminals.
	Terminal bool

	// OnRunning is called once the program runs; may be nil.
	Running func()

	// OnHandedOver is called in a namespace once its init process has the files of HoldOpen, before the program can run;
	// may be nil.
	Handed func()

	// HoldOpen lists files kept open for as long as any process of the program is left.
	Hold []*os.File

	// Label is visible in process listings, and found by FindSupervisors.
	Label string

	// Timeout is how long the program may run, also while we are stopped; zero or less means no limit.
	Timeout time.Duration

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration

	// Force, once closed, ends a grace period that has begun. It may be nil.
	Hurry <-chan struct{}

	// Limits limit the program. If one cannot be set the program does not run.
	Limits Limits

	within []Containment // for tests: only these are tried
	room   *Room         // nil: none
}

// Containment is the mechanism that finds and ends all descendants of a program.
type Containment string

// Containments, the best first.
const (
	// PIDNamespace: the supervisor is process 1 of a pid namespace, with which the kernel kills everything.
	PIDNamespace Containment = "pid-namespace"
	// Subreaper: the supervisor adopts orphans, and scans /proc until none is left. A program that kills its supervisor
	// on purpose escapes.
	Subreaper Containment = "subreaper"
	// ProcessGroup: the program's process group. Descendants that leave the group escape. For systems without the
	// others.
	ProcessGroup Containment = "process-group"
)

// TaskResult says how a task ended.
type Ending struct {
	Exit      int            // exit status of the program; 128+n when signal n killed it
	Signal    syscall.Signal // that n, or 0
	Leftovers int            // descendants that were left when the program ended by itself
	Stopped   bool           // the supervisor was asked to end the program by SIGTERM
	Contained Containment
}

// CannotRunError reports that a program does not exist (127) or cannot be executed (126), with the codes of env(1).
type CannotRunError struct {
	Program string
	Code    int
	Err     error
}

func (e *CannotRunError) Error() string { return fmt.Sprintf("%s: %v", e.Program, e.Err) }
func (e *CannotRunError) Unwrap() error { return e.Err }

// Errors for a program that did not end by itself.
var (
	ErrTimeout = errors.New("timed out")
	// ErrSupervisorKilled: the supervisor died where only it could have killed all descendants.
	ErrLost = errors.New("its supervisor was killed; what it started may still run")
)

// OutputError reports that output of a program that ran could not be copied.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "pass output on: " + e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Run runs the task to its end. When ctx ends first, all processes get SIGTERM and, after the grace, SIGKILL, and the
// error wraps context.Cause; after the timeout it is ErrTimeout. The result is valid with these errors, with
// ErrSupervisorKilled and with an *OutputError. Other errors mean that the program never ran: a *CannotRunError, else a
// *NotStartedError.
func (t Task) Run(ctx context.Context) (Ending, error) {
	if len(t.Argv) == 0 || t.Dir == nil {
		return Ending{}, &NotStartedError{errors.New("no program named, or nowhere to run it")}
	}
	if t.Terminal {
		return t.runAtTerminal(ctx)
	}
	return t.runSomehow(ctx)
}

// runContained runs the task in the best containment that is available.
func (t Task) runSomehow(ctx context.Context) (Ending, error) {
	candidates := t.within
	switch {
	case t.room != nil:
		candidates = []Containment{PIDNamespace} // a task in a namespace is in its pid namespace
	case candidates == nil:
		candidates = containments()
	}
	var refusals []error
	for _, way := range candidates {
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

// containmentError reports that a containment is not available on this machine; nothing has been run.
type refusedError struct {
	way Containment
	err error
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %v", e.way, e.err) }

// supervisorOrder tells a supervisor what to run, and supervisorReport is what it reports, each as one JSON document.
// After the order, each further byte asks it to end everything; the end of the connection means that the parent is
// gone.
type order struct {
	Argv     [][]byte      `json:"argv"` // as bytes, because a JSON string must be UTF-8
	Env      [][]byte      `json:"env"`
	Dir      []byte        `json:"dir"` // path of the directory that is open as dirFD
	Terminal bool          `json:"terminal"`
	Timeout  time.Duration `json:"timeout"`
	Grace    time.Duration `json:"grace"`
	Way      Containment   `json:"way"`
	Limits   Limits        `json:"limits"`
	CgroupAt int           `json:"cgroup_at,omitempty"` // index of cgroup.procs among the files handed over
}

type answer struct {
	Refused   string              `json:"refused,omitempty"`  // why the containment is not available
	Cannot    string              `json:"cannot,omitempty"`   // why the program cannot be executed
	Code      int                 `json:"code,omitempty"`     // 126 or 127, with ExecError
	Failed    string              `json:"failed,omitempty"`   // other error before the program ran
	Starting  bool                `json:"starting,omitempty"` // from here on the program may have run
	Running   bool                `json:"running,omitempty"`
	Ended     bool                `json:"ended,omitempty"`    // the supervisor was asked to end the program
	TimedOut  bool                `json:"timedout,omitempty"` // the timeout has expired
	Status    *syscall.WaitStatus `json:"status,omitempty"`   // of the program, once it has ended
	Leftovers int                 `json:"leftovers,omitempty"`
	Gone      bool                `json:"gone,omitempty"` // no process is left
}

// Descriptors of a supervisor. Its own standard streams are /dev/null: it runs the executable of the program that
// imports this package, and messages of that program's initialisation must not get into the task's output.
const (
	orderFD  = 3
	dirFD    = 4
	streamFD = 5 // and the next two: 0, 1 and 2 of the program
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
	handle, err := t.handOver(way, files)
	_ = theirs.Close()
	pipes.handOver()
	if err != nil {
		pipes.abandon()
		return Ending{}, err
	}
	if t.Handed != nil && t.room != nil {
		t.Handed()
	}
	spec := order{
		Argv: inBytes(t.Argv), Env: inBytes(t.Env), Dir: []byte(t.Dir.Name()),
		Terminal: t.Terminal, Timeout: t.Timeout, Grace: t.Grace, Way: way, Limits: t.Limits,
	}
	if t.Limits.Cgroup != nil {
		spec.CgroupAt = len(files) - 1
	}
	encoded, err := json.Marshal(spec)
	if err == nil {
		_, err = ours.Write(encoded) // a supervisor that is gone has reported why, or the report is missed below
	}
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watch(ctx, handle, ours, finished) })
	report, readErr := readAnswers(ours, func() {
		pipes.begin()
		if t.Running != nil {
			t.Running()
		}
	})
	waitErr := handle.wait() // when the supervisor is gone, all processes are gone
	close(finished)
	watching.Wait()
	copyErr := pipes.finish()
	return t.judge(ctx, handle, report, errors.Join(err, readErr, waitErr), copyErr)
}

// startSupervisor hands the files of a program to its supervisor: a new process, or one in a namespace.
func (t Task) handOver(way Containment, files []*os.File) (*above, error) {
	if t.room != nil {
		if err := t.room.handOver(files); err != nil {
			return nil, &NotStartedError{err}
		}
		return &above{way: way, room: t.room}, nil
	}
	cmd := &exec.Cmd{
		// Few threads are enough, and under a process limit fewer can be refused.
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

// supervisorHandle is our side of a supervisor: a child process, or a process in a namespace.
type above struct {
	way  Containment
	cmd  *exec.Cmd
	room *Room
}

// resume continues a supervisor that its program may have stopped.
func (a *above) wake() {
	if a.cmd != nil && a.way != PIDNamespace {
		_ = a.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// kill kills a supervisor that does not react, where the kernel then kills the program.
func (a *above) end() {
	if a.cmd != nil && a.way == PIDNamespace {
		_ = a.cmd.Process.Kill()
	}
}

// wait waits for the process to exit. A supervisor in a namespace is done when its connection ends.
func (a *above) wait() error {
	if a.cmd == nil {
		return nil
	}
	return ignoreExit(a.cmd.Wait())
}

// killSignal returns the signal that killed the supervisor, and with it the program.
func (a *above) killed() syscall.Signal {
	if a.cmd != nil {
		if ws, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal()
		}
	}
	return syscall.SIGKILL
}

// mayLeak reports whether processes of the program may have outlived the supervisor.
func (a *above) leaks() bool {
	if a.room != nil {
		return !a.room.ended(time.Second) // all of a namespace ends together
	}
	return a.way == Subreaper
}

func (a *above) String() string {
	if a.cmd == nil {
		return "the room has ended"
	}
	return a.cmd.ProcessState.String()
}

// watchContext asks the supervisor to end everything once ctx has ended. A supervisor that does not react is killed,
// where the kernel then kills the program; elsewhere only the supervisor can do that, however long it takes.
func (t Task) watch(ctx context.Context, handle *above, control *os.File, finished <-chan struct{}) {
	var resume <-chan time.Time
	if handle.way != PIDNamespace { // only here can the program stop its supervisor
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		resume = ticker.C
	}
	ended, force := ctx.Done(), (<-chan struct{})(nil)
	var killTimer <-chan time.Time
	for {
		select {
		case <-finished:
			return
		case <-ended:
			_, _ = control.Write([]byte{0}) // an error means that it is ending anyway
			ended, force = nil, t.Hurry
			killTimer = time.After(t.Grace + 10*time.Second)
		case <-force:
			_, _ = control.Write([]byte{0})
			force = nil
		case <-resume:
			handle.wake()
		case <-killTimer:
			handle.end()
		}
	}
}

// buildResult combines the reports and errors of a task into its result.
func (t Task) judge(ctx context.Context, handle *above, report answer, runErr, copyErr error) (Ending, error) {
	ending := Ending{Contained: handle.way, Leftovers: report.Leftovers}
	switch {
	case report.Refused != "":
		return Ending{}, &refusedError{handle.way, errors.New(report.Refused)}
	case report.Cannot != "":
		return ending, &CannotRunError{Program: t.Argv[0], Code: report.Code, Err: errors.New(report.Cannot)}
	case report.Failed != "":
		return ending, &NotStartedError{errors.New(report.Failed)}
	case !report.Starting && context.Cause(ctx) != nil:
		return ending, &NotStartedError{context.Cause(ctx)}
	case !report.Starting:
		return ending, &NotStartedError{errors.Join(fmt.Errorf("the supervisor did not begin: %v", handle), runErr)}
	case report.Status != nil && report.Status.Signaled():
		ending.Signal = report.Status.Signal()
		ending.Exit = 128 + int(ending.Signal)
	case report.Status != nil:
		ending.Exit = report.Status.ExitStatus()
	default: // the supervisor was killed, and with it everything else
		ending.Signal = handle.killed()
		ending.Exit = 128 + int(ending.Signal)
	}
	var err error
	switch cause := context.Cause(ctx); {
	case report.TimedOut:
		err = ErrTimeout
	case cause != nil && (report.Ended || report.Status == nil):
		err = cause
	default:
		ending.Stopped = report.Ended
	}
	if !report.Gone && handle.leaks() {
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

// readReports reads all reports of the supervisor until the connection ends, and returns them merged into one.
func readAnswers(from io.Reader, running func()) (merged answer, err error) {
	decoder := json.NewDecoder(from)
	for {
		wasRunning := merged.Running
		if err := decoder.Decode(&merged); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				return merged, nil
			}
			return merged, err
		}
		if merged.Running && !wasRunning {
			running()
		}
	}
}

// ignoreExitError drops exec.ExitError: the exit status of a supervisor means nothing.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // keeps a concurrent fork from inheriting these
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

// supervisorName is the argv[0] of supervisors.
const supervisorName = "git-agency-supervisor"

// StopTask asks the supervisor of a task to end it; a second call makes it use SIGKILL at once. A supervisor that is
// gone is not an error.
func Stop(supervisor int) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // SIGCONT, as it may have been stopped
		if err := syscall.Kill(supervisor, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
