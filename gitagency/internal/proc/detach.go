package proc

import (
	"os/exec"
	"syscall"
)

// DetachSelf starts this program again, with other arguments, as a background process that outlives us: in its own
// session, without a terminal, with standard streams on /dev/null. Only Argv, Dir and Env of the command are used.
// Argv[0] is the process's name, not its path. The error is a *NotStartedError.
func DetachSelf(c Command) error {
	cmd := &exec.Cmd{Path: selfExe(), Args: c.Argv, Dir: c.Dir, Env: c.Env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return &NotStartedError{err}
	}
	return cmd.Process.Release()
}
