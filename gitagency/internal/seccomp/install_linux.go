package seccomp

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Available asks whether the kernel supports filters that make system calls fail, and this package the architecture.
// Asking filters nothing.
func Available() error {
	if _, err := currentArchitecture(); err != nil {
		return err
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Install installs the filter for this thread and its children. The thread has given up new privileges.
func Install() error { return install(usualFilter) }

// InstallWithoutSockets is Install for programs that reach no other program: they cannot create a socket either.
func InstallWithoutSockets() error { return install(socketlessFilter) }

// Prepare builds the filter of Install in advance.
func Prepare() { _, _ = usualFilter() }

func install(filter func() ([]unix.SockFilter, error)) error {
	code, err := filter()
	if err != nil {
		return fmt.Errorf("seccomp filter: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	return nil
}

var (
	usualFilter      = sync.OnceValues(func() ([]unix.SockFilter, error) { return encodeFilter(blockedCalls()) })
	socketlessFilter = sync.OnceValues(func() ([]unix.SockFilter, error) { return encodeFilter(withoutSockets(blockedCalls())) })
)

// encodeFilter returns the filter in the kernel's format.
func encodeFilter(blocked []blockedCall) ([]unix.SockFilter, error) {
	a, err := currentArchitecture()
	if err != nil {
		return nil, err
	}
	var code []unix.SockFilter
	for _, in := range buildFilter(a, blocked) {
		code = append(code, unix.SockFilter{Code: in.code, Jt: in.jt, Jf: in.jf, K: in.k})
	}
	return code, nil
}
