package proc

import (
	"os/exec"
	"syscall"
)

// Detach starts a program that goes on when we have ended, and that nobody waits for: in a session of its own, without a
// terminal, and with nothing to read from or write to. Of the command, Argv, Dir and Env count. The error is a
// *NotStartedError.
func Detach(c Command) error {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return &NotStartedError{err}
	}
	return cmd.Process.Release()
}
