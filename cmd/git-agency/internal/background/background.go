// Package background starts this program again as a process that outlives the command.
package background

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts this program again with other arguments in the background: in its own session, without a terminal, with
// standard streams on /dev/null. argv[0] is the name of the process, not its path.
func Start(argv []string, dir string, env []string) error {
	program := "/proc/self/exe" // also when the file has been replaced meanwhile
	if runtime.GOOS != "linux" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	cmd := &exec.Cmd{Path: program, Args: argv, Dir: dir, Env: env, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
