package durable

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is where a file is read to. For a large one the kernel is asked to give it in large pieces: each small one
// takes it longer than to read what goes there.
func Memory(size int64) []byte {
	const piece = 2 << 20
	memory := make([]byte, size)
	if size < 2*piece {
		return memory
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	skip := (piece - start%piece) % piece
	whole := (uintptr(size) - skip) &^ (piece - 1)
	_ = unix.Madvise(memory[skip:skip+whole], unix.MADV_HUGEPAGE) // advice is all it is
	return memory
}
