package proc

import (
	"os/exec"
	"syscall"
)

// DetachSelf starts this very program again, with other arguments; it goes on when we have ended, and nobody waits for it:
// in a session of its own, without a terminal, and with nothing to read from or write to. Of the command, Argv, Dir and Env
// count. Argv[0] is what it is called, which need not be where it is. The error is a *NotStartedError.
func DetachSelf(c Command) error {
	cmd := &exec.Cmd{Path: self(), Args: c.Argv, Dir: c.Dir, Env: c.Env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return &NotStartedError{err}
	}
	return cmd.Process.Release()
}
