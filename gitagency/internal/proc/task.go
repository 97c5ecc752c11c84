package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

	// Root is the root directory of the program, in a namespace: a path there. Dir is in it under the same name, and programs
	// are looked up in it. Empty for that of the namespace.
	Root string

	// An *os.File is passed to the program; any other reader or writer is copied through a pipe, by a goroutine that is
	// not waited for in the case of Stdin. Nil is /dev/null.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Terminal gives the program its own pseudo-terminal, connected to Stdin, which must be the user's terminal, and to
	// those of Stdout and Stderr that are terminals.
	//
	// Without it, Stdin must not be a terminal, and the program gets pseudo-terminals in place of the terminals among
	// Stdout and Stderr, whose output is copied there: with a descriptor of a terminal it could read the user's keys, and
	// change its modes.
	Terminal bool

	// OnRunning is called once the program runs; may be nil.
	OnRunning func()

	// OnHandedOver is called in a namespace once its init process has the files of HoldOpen, before the program can run;
	// may be nil.
	OnHandedOver func()

	// HoldOpen lists files kept open for as long as any process of the program is left.
	HoldOpen []*os.File

	// Label is visible in process listings, and found by FindSupervisors.
	Label string

	// Timeout is how long the program may run, also while we are stopped; zero or less means no limit.
	Timeout time.Duration

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration

	// Force, once closed, ends a grace period that has begun. It may be nil.
	Force <-chan struct{}

	// Limits limit the program. If one cannot be set the program does not run.
	Limits Limits

	onStopped        func(syscall.Signal) (foreground bool) // called when the program on a terminal has stopped; it is continued afterwards
	terminalMoves    <-chan bool                            // whether the terminal is the program's to use, when that changes
	onlyContainments []Containment                          // for tests: only these are tried
	namespace        *Namespace                             // nil: none
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
type TaskResult struct {
	ExitCode    int            // exit status of the program; 128+n when signal n killed it
	Signal      syscall.Signal // that n, or 0
	Leftovers   int            // descendants that were left when the program ended by itself
	Stopped     bool           // the supervisor was asked to end the program by SIGTERM
	Containment Containment
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
	ErrSupervisorKilled = errors.New("its supervisor was killed; processes of the command may still run")
)

// OutputError reports that output of a program that ran could not be copied.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "write output: " + e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Run runs the task to its end. When ctx ends first, all processes get SIGTERM and, after the grace, SIGKILL, and the
// error wraps context.Cause; after the timeout it is ErrTimeout. The result is valid with these errors, with
// ErrSupervisorKilled and with an *OutputError. Other errors mean that the program never ran: a *CannotRunError, else a
// *NotStartedError.
func (t Task) Run(ctx context.Context) (TaskResult, error) {
	if len(t.Argv) == 0 || t.Dir == nil {
		return TaskResult{}, &NotStartedError{errors.New("no program or no directory given")}
	}
	if t.Root != "" && t.namespace == nil {
		return TaskResult{}, &NotStartedError{errors.New("another root directory needs a namespace")}
	}
	if t.Terminal {
		return t.runOnTerminal(ctx)
	}
	return t.runOnOutputTerminals(ctx)
}

// runContained runs the task in the best containment that is available.
func (t Task) runContained(ctx context.Context) (TaskResult, error) {
	candidates := t.onlyContainments
	switch {
	case t.namespace != nil:
		candidates = []Containment{PIDNamespace} // a task in a namespace is in its pid namespace
	case candidates == nil:
		candidates = supportedContainments()
	}
	var refusals []error
	for _, way := range candidates {
		if err := context.Cause(ctx); err != nil {
			return TaskResult{}, &NotStartedError{err}
		}
		ending, err := t.runIn(ctx, way)
		var refused *containmentError
		if !errors.As(err, &refused) {
			return ending, err
		}
		refusals = append(refusals, refused)
	}
	return TaskResult{}, &NotStartedError{errors.Join(refusals...)}
}

// containmentError reports that a containment is not available on this machine; nothing has been run.
type containmentError struct {
	containment Containment
	err         error
}

func (e *containmentError) Error() string { return fmt.Sprintf("%s: %v", e.containment, e.err) }

// Descriptors of a supervisor. Its own standard streams are /dev/null: it runs the executable of the program that
// imports this package, and messages of that program's initialisation must not get into the task's output.
const (
	controlFD = 3
	dirFD     = 4
	streamFD  = 5 // and the next two: 0, 1 and 2 of the program
)

func (t Task) runIn(ctx context.Context, way Containment) (_ TaskResult, err error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return TaskResult{}, &NotStartedError{err}
	}
	defer ours.Close()
	pipes, err := t.openStreams()
	if err != nil {
		return TaskResult{}, &NotStartedError{errors.Join(err, theirs.Close())}
	}
	files := slices.Concat([]*os.File{theirs, t.Dir}, pipes.childFiles[:], t.HoldOpen, t.Limits.files())
	handle, err := t.startSupervisor(way, files)
	_ = theirs.Close()
	pipes.closePassed()
	if err != nil {
		pipes.closeParentEnds()
		return TaskResult{}, err
	}
	if t.OnHandedOver != nil && t.namespace != nil {
		t.OnHandedOver()
	}
	spec := supervisorOrder{
		Argv: toBytes(t.Argv), Env: toBytes(t.Env), Dir: []byte(t.Dir.Name()), Root: []byte(t.Root),
		Terminal: t.Terminal, Timeout: t.Timeout, Grace: t.Grace, Containment: way, Limits: t.Limits,
	}
	if t.Limits.Cgroup != nil {
		spec.CgroupIndex = len(files) - 1
	}
	encoded, err := json.Marshal(spec)
	if err == nil {
		_, err = ours.Write(encoded) // a supervisor that is gone has reported why, or the report is missed below
	}
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watchContext(ctx, handle, ours, finished) })
	report, readErr := readReports(ours, func() {
		pipes.startCopying()
		if t.OnRunning != nil {
			t.OnRunning()
		}
	}, func(stop syscall.Signal) {
		sendContinue(ours, continueRequest, t.onStopped == nil || t.onStopped(stop))
	})
	waitErr := handle.wait() // when the supervisor is gone, all processes are gone
	close(finished)
	watching.Wait()
	copyErr := pipes.waitCopied()
	return t.buildResult(ctx, handle, report, errors.Join(err, readErr, waitErr), copyErr)
}

// watchContext asks the supervisor to end everything once ctx has ended. A supervisor that does not react is killed,
// where the kernel then kills the program; elsewhere only the supervisor can do that, however long it takes.
func (t Task) watchContext(ctx context.Context, handle *supervisorHandle, control *os.File, finished <-chan struct{}) {
	var resume <-chan time.Time
	if handle.containment != PIDNamespace { // only here can the program stop its supervisor
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
			_, _ = control.Write([]byte{byte(endRequest)}) // an error means that it is ending anyway
			ended, force = nil, t.Force
			killTimer = time.After(t.Grace + 10*time.Second)
		case <-force:
			_, _ = control.Write([]byte{byte(endRequest)})
			force = nil
		case foreground := <-t.terminalMoves:
			sendContinue(control, foregroundRequest, foreground)
		case <-resume:
			handle.resume()
		case <-killTimer:
			handle.kill()
		}
	}
}

// sendContinue sends a request to continue a program in the foreground of its terminal, or else in the background.
func sendContinue(control *os.File, request supervisorRequest, foreground bool) {
	if !foreground {
		request = backgroundRequest
	}
	_, _ = control.Write([]byte{byte(request)}) // an error means that it has ended
}

// buildResult combines the reports and errors of a task into its result.
func (t Task) buildResult(ctx context.Context, handle *supervisorHandle, report supervisorReport, runErr, copyErr error) (TaskResult, error) {
	ending := TaskResult{Containment: handle.containment, Leftovers: report.Leftovers}
	switch {
	case report.ContainmentError != "":
		return TaskResult{}, &containmentError{handle.containment, errors.New(report.ContainmentError)}
	case report.ExecError != "":
		return ending, &CannotRunError{Program: t.Argv[0], Code: report.ExecCode, Err: errors.New(report.ExecError)}
	case report.StartError != "":
		return ending, &NotStartedError{errors.New(report.StartError)}
	case !report.Starting && context.Cause(ctx) != nil:
		return ending, &NotStartedError{context.Cause(ctx)}
	case !report.Starting:
		return ending, &NotStartedError{errors.Join(fmt.Errorf("the supervisor did not start: %v", handle), runErr)}
	case report.Status != nil && report.Status.Signaled():
		ending.Signal = report.Status.Signal()
		ending.ExitCode = 128 + int(ending.Signal)
	case report.Status != nil:
		ending.ExitCode = report.Status.ExitStatus()
	default: // the supervisor was killed, and with it everything else
		ending.Signal = handle.killSignal()
		ending.ExitCode = 128 + int(ending.Signal)
	}
	var err error
	switch cause := context.Cause(ctx); {
	case report.TimedOut:
		err = ErrTimeout
	case cause != nil && (report.EndRequested || report.Status == nil):
		err = cause
	default:
		ending.Stopped = report.EndRequested
	}
	if !report.AllGone && handle.mayLeak() {
		err = errors.Join(err, ErrSupervisorKilled, runErr)
	}
	if copyErr != nil {
		err = errors.Join(err, &OutputError{copyErr})
	}
	return ending, err
}

func toBytes(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}

func toStrings(all [][]byte) []string {
	words := make([]string, len(all))
	for i, b := range all {
		words[i] = string(b)
	}
	return words
}

// supervisorName is the argv[0] of supervisors.
const supervisorName = "git-agency-supervisor"

// StopTask asks the supervisor of a task to end it; a second call makes it use SIGKILL at once. A supervisor that is
// gone is not an error.
func StopTask(supervisor int) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // SIGCONT, as it may have been stopped
		if err := syscall.Kill(supervisor, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
