package proc

import (
	"os"
	"syscall"
)

// ask lets a program start in namespaces of its own.
func (n *Namespaces) ask(attr *syscall.SysProcAttr) error {
	attr.Cloneflags = syscall.CLONE_NEWUSER
	// One id each, and no say over groups: that is all an ordinary user may ask for.
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if n.PID {
		attr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if n.Mount {
		// Not a flag of clone, which the kernel judges by what we may do rather than the program. Go
		// then also cuts what is mounted there from what is mounted here.
		attr.Unshareflags = syscall.CLONE_NEWNS
	}
	return nil
}
