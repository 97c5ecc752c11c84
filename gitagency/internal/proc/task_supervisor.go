package proc

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// supervisorRequest is a byte that the parent sends to a supervisor after the order.
type supervisorRequest byte

const (
	endRequest        supervisorRequest = iota // end everything; the second time at once
	continueRequest                            // continue a program whose stop was reported, in the foreground of its terminal
	foregroundRequest                          // the same for one that goes on in the background, or was stopped there
	backgroundRequest                          // continue it in the background: it is stopped again when it uses the terminal
)

// supervisorOrder tells a supervisor what to run, and supervisorReport is what it reports, each as one JSON document.
// After the order, each further byte is a supervisorRequest; the end of the connection means that the parent is gone.
type supervisorOrder struct {
	Argv        [][]byte      `json:"argv"` // as bytes, because a JSON string must be UTF-8
	Env         [][]byte      `json:"env"`
	Dir         []byte        `json:"dir"` // path of the directory that is open as dirFD
	Root        []byte        `json:"root,omitempty"`
	Terminal    bool          `json:"terminal"`
	Timeout     time.Duration `json:"timeout"`
	Grace       time.Duration `json:"grace"`
	Containment Containment   `json:"way"`
	Limits      Limits        `json:"limits"`
	CgroupIndex int           `json:"cgroup_at,omitempty"` // index of cgroup.procs among the files handed over
}

type supervisorReport struct {
	ContainmentError string              `json:"refused,omitempty"`  // why the containment is not available
	ExecError        string              `json:"cannot,omitempty"`   // why the program cannot be executed
	ExecCode         int                 `json:"code,omitempty"`     // 126 or 127, with ExecError
	StartError       string              `json:"failed,omitempty"`   // other error before the program ran
	Starting         bool                `json:"starting,omitempty"` // from here on the program may have run
	Running          bool                `json:"running,omitempty"`
	EndRequested     bool                `json:"ended,omitempty"`    // the supervisor was asked to end the program
	TimedOut         bool                `json:"timedout,omitempty"` // the timeout has expired
	Status           *syscall.WaitStatus `json:"status,omitempty"`   // of the program, once it has ended
	StopSignal       syscall.Signal      `json:"stopped,omitempty"`  // signal that has stopped a program on a terminal, which waits for continueRequest
	Leftovers        int                 `json:"leftovers,omitempty"`
	AllGone          bool                `json:"gone,omitempty"` // no process is left
}

// startSupervisor hands the files of a program to its supervisor: a new process, or one in a namespace.
func (t Task) startSupervisor(way Containment, files []*os.File) (*supervisorHandle, error) {
	if t.namespace != nil {
		if err := t.namespace.sendTask(files); err != nil {
			return nil, &NotStartedError{err}
		}
		return &supervisorHandle{containment: way, namespace: t.namespace}, nil
	}
	cmd := &exec.Cmd{
		// Few threads are enough, and under a process limit fewer can be refused.
		Path: selfExe(), Args: []string{supervisorName, t.Label}, Env: []string{"GOMAXPROCS=2"}, Dir: "/",
		ExtraFiles: files, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	// Nil closes a descriptor. One that we inherited, such as that of a terminal, could be opened again by the program
	// through /proc, as long as the supervisor has it.
	for highest := highestInheritable(); controlFD+len(cmd.ExtraFiles) <= highest; {
		cmd.ExtraFiles = append(cmd.ExtraFiles, nil)
	}
	err := way.setSysProcAttr(cmd.SysProcAttr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, &containmentError{way, err}
	}
	return &supervisorHandle{containment: way, cmd: cmd}, nil
}

// supervisorHandle is our side of a supervisor: a child process, or a process in a namespace.
type supervisorHandle struct {
	containment Containment
	cmd         *exec.Cmd
	namespace   *Namespace
}

// resume continues a supervisor that its program may have stopped.
func (a *supervisorHandle) resume() {
	if a.cmd != nil && a.containment != PIDNamespace {
		_ = a.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// kill kills a supervisor that does not react, where the kernel then kills the program.
func (a *supervisorHandle) kill() {
	if a.cmd != nil && a.containment == PIDNamespace {
		_ = a.cmd.Process.Kill()
	}
}

// wait waits for the process to exit. A supervisor in a namespace is done when its connection ends.
func (a *supervisorHandle) wait() error {
	if a.cmd == nil {
		return nil
	}
	return ignoreExitError(a.cmd.Wait())
}

// killSignal returns the signal that killed the supervisor, and with it the program.
func (a *supervisorHandle) killSignal() syscall.Signal {
	if a.cmd != nil {
		if ws, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal()
		}
	}
	return syscall.SIGKILL
}

// mayLeak reports whether processes of the program may have outlived the supervisor.
func (a *supervisorHandle) mayLeak() bool {
	if a.namespace != nil {
		return !a.namespace.waitEnded(time.Second) // all of a namespace ends together
	}
	return a.containment == Subreaper
}

func (a *supervisorHandle) String() string {
	if a.cmd == nil {
		return "the namespaces have ended"
	}
	return a.cmd.ProcessState.String()
}

// readReports reads all reports of the supervisor until the connection ends, and returns them merged into one. It calls
// running once, and stopped each time that the program has stopped.
func readReports(from io.Reader, running func(), stopped func(syscall.Signal)) (merged supervisorReport, err error) {
	decoder := json.NewDecoder(from)
	for {
		wasRunning := merged.Running
		merged.StopSignal = 0
		if err := decoder.Decode(&merged); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				return merged, nil
			}
			return merged, err
		}
		if merged.Running && !wasRunning {
			running()
		}
		if merged.StopSignal != 0 {
			stopped(merged.StopSignal)
		}
	}
}

// ignoreExitError drops exec.ExitError: the exit status of a supervisor means nothing.
func ignoreExitError(err error) error {
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
