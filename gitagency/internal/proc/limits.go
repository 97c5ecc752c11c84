package proc

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Limits are resource limits that apply to a program and to its descendants: to a Task from its first instruction on, to
// a Command from the moment after its start on. The zero value limits nothing. A tighter limit that is in force already
// stays.
type Limits struct {
	// CPU is the processor time that each single process may use, in whole seconds. Then the kernel sends SIGXCPU, and a
	// second later SIGKILL.
	CPU time.Duration `json:"cpu,omitempty"`

	// FileSize is the largest size in bytes of a file; a process that writes beyond it gets SIGXFSZ.
	FileSize int64 `json:"file_size,omitempty"`

	// Data is the number of bytes of writable memory that each single process may map, used or not.
	Data int64 `json:"data,omitempty"`

	// Processes is the maximal number of processes and threads, not counting those of supervisors. The kernel counts
	// them by user, so the program must be in its own user namespace, and root is not limited. Threads that a supervisor
	// creates later are counted, so that the program may get a few less.
	Processes int `json:"processes,omitempty"`

	// Nice is the lowest niceness.
	Nice int `json:"nice,omitempty"`

	// Cgroup is the cgroup.procs file, open for writing, of the cgroup that the program is put into. Its supervisor
	// stays outside, so that the OOM killer does not kill it.
	Cgroup *os.File `json:"-"`

	inUserNamespace bool // the program is in its own user namespace, or the user is root
	otherThreads    int  // threads of other supervisors that the kernel counts as well
}

// isSet reports whether there is any limit to set.
func (l Limits) isSet() bool {
	return l.CPU > 0 || l.FileSize > 0 || l.Data > 0 || l.Processes > 0 || l.Nice > 0 || l.Cgroup != nil
}

// files returns the descriptors that the supervisor needs.
func (l Limits) files() []*os.File {
	if l.Cgroup == nil {
		return nil
	}
	return []*os.File{l.Cgroup}
}

// limitError is a limit that could not be set; the program has not started.
type limitError struct {
	operation string
	err       error
}

func (e *limitError) Error() string { return e.operation + ": " + e.err.Error() }
func (e *limitError) Unwrap() error { return e.err }

var errNoUserNamespace = errors.New("without a user namespace the kernel counts them together with the user's other processes")

// CPUExceeded reports whether the kernel ended the program because it used all of l.CPU: with SIGXCPU, or with SIGKILL a
// second later. The kernel counts the limit in ticks and the result in nanoseconds, so that the two can differ.
func (r Result) CPUExceeded(l Limits) bool {
	switch r.ExitCode {
	case 128 + int(syscall.SIGXCPU):
		return l.CPU > 0 && r.CPUTime >= l.CPU/4 // else the limit was a tighter one of the user's
	case 128 + int(syscall.SIGKILL):
		return l.CPU > 0 && r.CPUTime >= l.CPU-l.CPU/10
	}
	return false
}

// DataExceeded reports whether the program failed after it used at least half of l.Data. That is as good as it gets:
// an allocation that the kernel refuses leaves no trace but the failure, and what it asked for was not used.
func (r Result) DataExceeded(l Limits) bool {
	return l.Data > 0 && r.ExitCode != 0 && r.MaxRSS >= l.Data/2
}

// FileSizeExceeded reports whether the kernel ended the program because it wrote beyond l.FileSize.
func (r Result) FileSizeExceeded(l Limits) bool {
	return l.FileSize > 0 && r.ExitCode == 128+int(syscall.SIGXFSZ)
}
