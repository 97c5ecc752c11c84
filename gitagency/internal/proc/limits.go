package proc

import (
	"errors"
	"os"
)

// Limits are resource limits that apply to a program from its first instruction on, and to its descendants. The zero
// value limits nothing. A tighter limit that is in force already stays.
type Limits struct {
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
	return l.FileSize > 0 || l.Data > 0 || l.Processes > 0 || l.Nice > 0 || l.Cgroup != nil
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
