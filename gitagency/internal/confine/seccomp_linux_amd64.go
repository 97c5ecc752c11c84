package confine

import (
	"maps"

	"golang.org/x/sys/unix"
)

// machine is what this one is: the numbers of all calls that are banned and that it has.
func machine() (architecture, error) {
	calls := commonCalls()
	maps.Copy(calls, map[string]uint32{ // from before there were others that do as much
		"chmod":  unix.SYS_CHMOD,
		"creat":  unix.SYS_CREAT,
		"ioperm": unix.SYS_IOPERM,
		"iopl":   unix.SYS_IOPL,
		"mknod":  unix.SYS_MKNOD,
		"open":   unix.SYS_OPEN,
		"uselib": unix.SYS_USELIB,
	})
	return architecture{
		audit:   unix.AUDIT_ARCH_X86_64,
		foreign: 0x40000000, // x32
		calls:   calls,
	}, nil
}
