package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// install has every system call of this thread, and of what it starts, judged by the filter.
func install() error {
	a, err := machine()
	if err != nil {
		return fmt.Errorf("seccomp filter: %w", err)
	}
	program := filter(a)
	code := make([]unix.SockFilter, len(program))
	for i, in := range program {
		code[i] = unix.SockFilter{Code: in.code, Jt: in.jt, Jf: in.jf, K: in.k}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	return nil
}
