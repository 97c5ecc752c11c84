// Package terminal gives a program a pseudo-terminal in place of the user's terminal. A PTY is our side: it relays keys,
// output, the size, and stops by job control between the two terminals, and afterwards restores the modes of the user's.
// Controlling is the side of the supervisor that runs the program: the controlling terminal of its session. A Host takes
// the place of the user's terminal where there is none, and Attach connects one with it. Only while a PTY is open, during
// Attach and for WatchKeys may the package change the modes of the user's terminal, read its keys, handle SIGWINCH and
// SIGCONT and, for a PTY, stop our process group. It must never hand a descriptor of the user's terminal to a program,
// which could read keys with it, and starts no program itself.
package terminal

import (
	"errors"
	"io"
	"os"

	"golang.org/x/term"
)

// ErrBackground reports that another process group is in the foreground of the terminal, usually because a shell started
// us with "&". We must not read its keyboard: the kernel would stop us.
var ErrBackground = errors.New("not in the foreground of the terminal")

// Is reports whether a stream is an *os.File of a terminal. It does not use File.Fd, which would make the file blocking for others.
func Is(stream any) (is bool) {
	f, ok := stream.(*os.File)
	if !ok || f == nil {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	return is && err == nil
}

// AttachRequest describes how to attach to a Host.
type AttachRequest struct {
	Dir        string    // required: directory of the host
	Keyboard   *os.File  // the user's terminal, whose keys and size are sent; nil: none are
	Out        io.Writer // required: gets the output
	DetachKeys []byte    // keys that end it, as a terminal without special modes sends them; empty: none
}

// ErrDetached is the cause of a context that WatchKeys has cancelled.
var ErrDetached = errors.New("detached")
