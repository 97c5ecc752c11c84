package proc

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// takeTerminal makes the program's standard input the controlling terminal of our session, and has the program start
// there in the foreground, in a process group of its own. The kernel ignores Ctrl-Z in a process group whose leader has
// no parent in the same session; a program that led its own session could not be stopped.
func (s *supervisor) takeTerminal(attr *syscall.SysProcAttr) error {
	if err := unix.IoctlSetInt(s.streams[0], unix.TIOCSCTTY, 0); err != nil {
		return os.NewSyscallError("set the controlling terminal", err)
	}
	fd, err := unix.FcntlInt(uintptr(s.streams[0]), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	s.terminal = os.NewFile(uintptr(fd), "terminal")
	attr.Setsid, attr.Foreground, attr.Ctty = false, true, s.streams[0]
	return nil
}

// releaseTerminal gives up the controlling terminal once the program is gone: an init process may run another program.
func (s supervisor) releaseTerminal() {
	if s.terminal == nil {
		return
	}
	_ = unix.IoctlSetInt(int(s.terminal.Fd()), unix.TIOCNOTTY, 0) // the parent may have hung it up already
	_ = s.terminal.Close()
}

// continueProgram continues a stopped program in the foreground of its terminal, as a shell does, or in the background,
// where our own process group takes its place. The process group that was in the foreground before, such as a job of a
// shell, is there again afterwards. A program that has ended stays as it is: its pid may be that of another.
func (s *supervisor) continueProgram(request supervisorRequest, ended bool) {
	if ended {
		return
	}
	group, err := unix.Getpgid(s.programPID)
	if err != nil {
		return // it is gone
	}
	if s.terminal != nil {
		fd, ours := int(s.terminal.Fd()), unix.Getpgrp()
		current, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		switch {
		case err != nil:
		case request == backgroundRequest && current != ours:
			s.foregroundGroup = current
			setForeground(fd, ours)
		case request == backgroundRequest:
		case current == ours && s.foregroundGroup > 0 && unix.Kill(-s.foregroundGroup, 0) == nil:
			setForeground(fd, s.foregroundGroup)
		case current == ours || request == continueRequest:
			setForeground(fd, group)
		}
	}
	_ = unix.Kill(-group, unix.SIGCONT)
}

// setForeground changes the foreground process group of our terminal. SIGTTOU is blocked meanwhile: the kernel would send
// it to us, as we are not in the foreground, and refuse the change.
func setForeground(terminal, group int) {
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
	_ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, group) // the group may be gone
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}
