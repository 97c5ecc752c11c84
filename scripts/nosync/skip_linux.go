package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nativeCalls are the values that the kernel gives for the architecture of a system call of a program that is built for GOARCH.
var nativeCalls = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}

// Offsets in struct seccomp_data.
const (
	offsetCall         = 0
	offsetArchitecture = 4
)

// skipSyncs has the kernel answer the system calls that sync with success, in this process and in all that it starts.
func skipSyncs() error {
	native, known := nativeCalls[runtime.GOARCH]
	if !known {
		return fmt.Errorf("on %s the numbers of system calls are not known", runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equals := func(value uint32, then, otherwise int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: uint8(then), Jf: uint8(otherwise)}
	}
	answer := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }

	calls := []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS, unix.SYS_SYNC}
	filter := []unix.SockFilter{load(offsetArchitecture), equals(native, 0, len(calls)+1), load(offsetCall)}
	for i, call := range calls {
		filter = append(filter, equals(call, len(calls)-i, 0))
	}
	filter = append(filter, answer(unix.SECCOMP_RET_ALLOW), answer(unix.SECCOMP_RET_ERRNO)) // without a number: success
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	runtime.LockOSThread() // the thread that will call exec
	if unix.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
