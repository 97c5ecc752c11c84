package terminal

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Controlling is the controlling terminal of our session, in which a program runs as a job of ours.
type Controlling struct {
	file   *os.File
	before int // process group that was in the foreground before ours; zero: none
}

// TakeControl makes a terminal the controlling terminal of our session, which we lead and which has none.
func TakeControl(fd int) (*Controlling, error) {
	if err := unix.IoctlSetInt(fd, unix.TIOCSCTTY, 0); err != nil {
		return nil, os.NewSyscallError("set the controlling terminal", err)
	}
	ours, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return &Controlling{file: os.NewFile(uintptr(ours), "terminal")}, nil
}

// Release gives up the terminal once the program is gone: our session may get another.
func (c *Controlling) Release() {
	_ = unix.IoctlSetInt(int(c.file.Fd()), unix.TIOCNOTTY, 0) // the other end may have hung it up already
	_ = c.file.Close()
}

// Background puts our own process group in the foreground, in place of the program's: the kernel stops the program when
// it uses the terminal.
func (c *Controlling) Background() {
	current, err := unix.IoctlGetInt(int(c.file.Fd()), unix.TIOCGPGRP)
	if err == nil && current != unix.Getpgrp() {
		c.before = current
		c.setForeground(unix.Getpgrp())
	}
}

// Foreground ends Background: the process group that was in the foreground before, such as a job of a shell, is there
// again, or the program's group if that one is gone. With always, the program's group is put in the foreground also if
// another group than ours is there, as a shell does with a job that has stopped.
func (c *Controlling) Foreground(program int, always bool) {
	current, err := unix.IoctlGetInt(int(c.file.Fd()), unix.TIOCGPGRP)
	background := current == unix.Getpgrp()
	switch {
	case err != nil:
	case background && c.before > 0 && unix.Kill(-c.before, 0) == nil:
		c.setForeground(c.before)
	case background || always:
		c.setForeground(program)
	}
}

// setForeground changes the foreground process group. SIGTTOU is blocked meanwhile: the kernel would send it to us, as we
// are not in the foreground, and refuse the change.
func (c *Controlling) setForeground(group int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var blocked, before unix.Sigset_t
	const number = uint(unix.SIGTTOU) - 1
	bits := uint(64)
	if len(blocked.Val) > 16 { // 32-bit words
		bits = 32
	}
	blocked.Val[number/bits] |= 1 << (number % bits)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before) != nil {
		return
	}
	_ = unix.IoctlSetPointerInt(int(c.file.Fd()), unix.TIOCSPGRP, group) // the group may be gone
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}
