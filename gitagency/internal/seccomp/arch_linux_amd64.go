package seccomp

import (
	"maps"

	"golang.org/x/sys/unix"
)

// currentArchitecture describes this architecture, with the numbers of all blocked calls that it has.
func currentArchitecture() (architecture, error) {
	calls := commonCalls()
	maps.Copy(calls, map[string]uint32{ // legacy calls, which newer architectures lack
		"chmod":  unix.SYS_CHMOD,
		"creat":  unix.SYS_CREAT,
		"ioperm": unix.SYS_IOPERM,
		"iopl":   unix.SYS_IOPL,
		"mknod":  unix.SYS_MKNOD,
		"open":   unix.SYS_OPEN,
		"uselib": unix.SYS_USELIB,
	})
	return architecture{
		auditArch:   unix.AUDIT_ARCH_X86_64,
		foreignFrom: 0x40000000, // x32
		calls:       calls,
	}, nil
}
