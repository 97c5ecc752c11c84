package durable

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllocBuffer returns a buffer to read a file of this size into. For a large file it asks the kernel for huge pages:
// faulting in small pages takes longer than reading the file.
func AllocBuffer(size int64) []byte {
	const hugePage = 2 << 20
	memory := make([]byte, size)
	if size < 2*hugePage {
		return memory
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	skip := (hugePage - start%hugePage) % hugePage
	length := (uintptr(size) - skip) &^ (hugePage - 1)
	_ = unix.Madvise(memory[skip:skip+length], unix.MADV_HUGEPAGE) // only advice: a failure changes nothing
	return memory
}
