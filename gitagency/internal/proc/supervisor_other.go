//go:build !linux

package proc

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func containments() []Containment { return []Containment{ProcessGroup} }

func (c Containment) ask(*syscall.SysProcAttr) error { return nil }
func (c Containment) enter() error                   { return nil }
func (c Containment) settle() error                  { return nil }

// hunt is not needed where nobody can be found.
type hunt struct{}

func newHunt() hunt { return hunt{} }

// tell reaches the process group of the program. How many that are, nobody says.
func (c Containment) tell(_ hunt, program int) int {
	_ = syscall.Kill(-program, syscall.SIGTERM) // a group that is gone is fine
	_ = syscall.Kill(-program, syscall.SIGCONT)
	return 0
}

func (c Containment) retell(hunt) int { return 0 }

func (c Containment) finish(program int, empty <-chan struct{}) {
	_ = syscall.Kill(-program, syscall.SIGKILL)
	select {
	case <-empty:
	case <-time.After(time.Second): // what left the group is not ours to wait for
		os.Exit(0)
	}
}

// leave ends what is left of the group: those are not our children any more, so nobody told us of them.
func (c Containment) leave(program int) { _ = syscall.Kill(-program, syscall.SIGKILL) }

func closeOnExec() error {
	for fd := 3; fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
	return nil
}

func letGo(s stop) { _ = syscall.Kill(s.pid, syscall.SIGCONT) }
