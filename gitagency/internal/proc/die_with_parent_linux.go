package proc

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// parentPipe makes the kernel kill a program and its process group when this process ends. nil does nothing.
//
// The parent-death signal kills the program, from its first instruction on, but not its children. The kernel sends it
// when the thread that started the program ends, so the goroutine stays on that thread until close.
//
// The pipe kills the process group. Only this process has the write end. When the kernel closes it, the kernel sends the
// signal of the read end to the group (fcntl(2), F_SETOWN and F_SETSIG). The program and its children inherit the read
// end, because the kernel sends nothing after the last descriptor of it is closed.
type parentPipe struct{ read, write *os.File }

// newParentPipe prepares a program that has not started. The same goroutine calls close when the program has ended.
func (c Command) newParentPipe(cmd *exec.Cmd) (*parentPipe, error) {
	if !c.DieWithParent {
		return nil, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.ExtraFiles = append(slices.Clip(cmd.ExtraFiles), read)
	return &parentPipe{read, write}, nil
}

// killGroupWithUs names the process group of the program, which has started.
func (p *parentPipe) killGroupWithUs(pgid int) error {
	if p == nil {
		return nil
	}
	for _, set := range []struct {
		what     string
		cmd, arg int
	}{
		{"fcntl F_SETOWN", unix.F_SETOWN, -pgid},
		{"fcntl F_SETSIG", unix.F_SETSIG, int(unix.SIGKILL)},
		{"fcntl F_SETFL", unix.F_SETFL, unix.O_ASYNC},
	} {
		if _, err := unix.FcntlInt(p.read.Fd(), set.cmd, set.arg); err != nil {
			return os.NewSyscallError(set.what, err)
		}
	}
	return nil
}

// close lets processes that the program left, such as a daemon that keeps passwords, outlive this process.
func (p *parentPipe) close() {
	if p == nil {
		return
	}
	_, _ = unix.FcntlInt(p.read.Fd(), unix.F_SETFL, 0) // cannot fail for a pipe
	_, _ = p.read.Close(), p.write.Close()             // no data was written
	runtime.UnlockOSThread()
}
