package proc

import (
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/terminal"
)

// takeTerminal makes the program's standard input the controlling terminal of our session, and has the program start
// there in the foreground, in a process group of its own. The kernel ignores Ctrl-Z in a process group whose leader has
// no parent in the same session; a program that led its own session could not be stopped.
func (s *supervisor) takeTerminal(attr *syscall.SysProcAttr) (err error) {
	if s.terminal, err = terminal.TakeControl(s.streams[0]); err != nil {
		return err
	}
	attr.Setsid, attr.Foreground, attr.Ctty = false, true, s.streams[0]
	return nil
}

// releaseTerminal gives up the controlling terminal once the program is gone: an init process may run another program.
func (s supervisor) releaseTerminal() {
	if s.terminal != nil {
		s.terminal.Release()
	}
}

// continueProgram continues a stopped program in the foreground of its terminal, as a shell does, or in the background.
// A program that has ended stays as it is: its pid may be that of another.
func (s *supervisor) continueProgram(request supervisorRequest, ended bool) {
	if ended {
		return
	}
	group, err := syscall.Getpgid(s.programPID)
	if err != nil {
		return // it is gone
	}
	switch {
	case s.terminal == nil:
	case request == backgroundRequest:
		s.terminal.Background()
	default:
		s.terminal.Foreground(group, request == continueRequest)
	}
	_ = syscall.Kill(-group, syscall.SIGCONT)
}
