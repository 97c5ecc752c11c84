package seccomp

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install installs the filter for this thread and its children. The thread has given up new privileges.
func Install() error {
	code, err := filterCode()
	if err != nil {
		return fmt.Errorf("seccomp filter: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	return nil
}

// filterCode is the filter in the kernel's format.
var filterCode = sync.OnceValues(func() ([]unix.SockFilter, error) {
	a, err := currentArchitecture()
	if err != nil {
		return nil, err
	}
	var code []unix.SockFilter
	for _, in := range buildFilter(a) {
		code = append(code, unix.SockFilter{Code: in.code, Jt: in.jt, Jf: in.jf, K: in.k})
	}
	return code, nil
})

// Prepare builds the filter in advance.
func Prepare() { _, _ = filterCode() }
