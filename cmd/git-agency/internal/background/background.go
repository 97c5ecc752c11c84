// Package background starts this program again as a process that outlives the command. It must never wait for that
// process or give it a terminal.
package background

import (
	"os"
	"runtime"
	"syscall"
)

// Start starts this program again with other arguments in the background: in its own session, without a terminal, with
// standard streams on /dev/null. argv[0] is the name of the process, not its path. A nil env is that of this process. The
// new process keeps lock open until it ends.
func Start(argv []string, dir string, env []string, lock *os.File) error {
	program := "/proc/self/exe" // also when the file has been replaced meanwhile
	if runtime.GOOS != "linux" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	process, err := os.StartProcess(program, argv, &os.ProcAttr{
		Dir: dir, Env: env, Files: []*os.File{null, null, null, lock}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	return process.Release()
}
