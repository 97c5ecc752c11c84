package proc

import (
	"errors"
	"os"
)

// Limits bound a program from its first instruction on, together with what comes of it. The zero value
// bounds nothing. A program that is already bound tighter stays so.
type Limits struct {
	// FileSize is how many bytes a file may be made to hold; what writes further gets SIGXFSZ.
	FileSize int64 `json:"file_size,omitempty"`

	// Data is how many bytes each process by itself may have to write to, used or not.
	Data int64 `json:"data,omitempty"`

	// Processes is how many processes and threads there may be at a time, those of supervisors not counted.
	// The kernel counts them by user, so the program must be in a user namespace of its own, and root is
	// not bound. What threads a supervisor comes to need later are counted, so that it may be a few less.
	Processes int `json:"processes,omitempty"`

	// Nice is the least niceness.
	Nice int `json:"nice,omitempty"`

	// Cgroup is the cgroup.procs, open for writing, of the cgroup that the program is put into. Its
	// supervisor stays where it is, and so is not what is killed when there is no more memory.
	Cgroup *os.File `json:"-"`

	apart  bool // the program is in a user namespace of its own, if the user is not root
	others int  // how many threads are counted with the program's that are other supervisors'
}

// asked reports whether there is anything to set.
func (l Limits) asked() bool {
	return l.FileSize > 0 || l.Data > 0 || l.Processes > 0 || l.Nice > 0 || l.Cgroup != nil
}

// files is what the supervisor has to be given.
func (l Limits) files() []*os.File {
	if l.Cgroup == nil {
		return nil
	}
	return []*os.File{l.Cgroup}
}

// limitError is a limit that could not be set; the program has not begun.
type limitError struct {
	what string
	err  error
}

func (e *limitError) Error() string { return e.what + ": " + e.err.Error() }
func (e *limitError) Unwrap() error { return e.err }

var errNotApart = errors.New("the kernel does not count them apart from the user's other processes, as there is no user namespace")
