//go:build !linux

package proc

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func selfExe() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func supportedContainments() []Containment { return []Containment{ProcessGroup} }

func (c Containment) setSysProcAttr(*syscall.SysProcAttr) error { return nil }
func (c Containment) setup() error                              { return nil }
func (c Containment) dropCapabilities() error                   { return nil }

// descendants is empty where descendants cannot be found.
type descendants struct{}

func newDescendants() descendants { return descendants{} }

// terminate signals the process group of the program. The number of its processes is unknown.
func (c Containment) terminate(_ descendants, program int) int {
	_ = syscall.Kill(-program, syscall.SIGTERM) // the group may be gone already
	_ = syscall.Kill(-program, syscall.SIGCONT)
	return 0
}

func (c Containment) terminateNew(descendants) int { return 0 }

func (c Containment) kill(program int, empty <-chan struct{}) {
	_ = syscall.Kill(-program, syscall.SIGKILL)
	select {
	case <-empty:
	case <-time.After(time.Second): // processes that left the group are not waited for
		os.Exit(0)
	}
}

// release kills the rest of the process group: orphans are not our children here, so we do not learn of them.
func (c Containment) release(program int) { _ = syscall.Kill(-program, syscall.SIGKILL) }

func highestInheritable() int { return 0 }

func setCloseOnExec() error {
	for fd := 3; fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
	return nil
}

const reportStops = 0

func detachTraced(s childStop) bool { return syscall.Kill(s.pid, syscall.SIGCONT) == nil }
