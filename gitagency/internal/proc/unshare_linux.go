package proc

import (
	"os"
	"syscall"
)

// setSysProcAttr makes a program start in its own namespaces.
func (n *Unshare) setSysProcAttr(attr *syscall.SysProcAttr) error {
	attr.Cloneflags = syscall.CLONE_NEWUSER
	// One id each, and setgroups denied: an unprivileged user may not ask for more.
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if n.PID {
		attr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if n.Mount {
		// Not a flag of clone, which the kernel allows or denies by our capabilities rather than the program's. With
		// Unshareflags, Go also makes the mount propagation private.
		attr.Unshareflags = syscall.CLONE_NEWNS
	}
	return nil
}
