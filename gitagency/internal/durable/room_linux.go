package durable

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Room is memory for a file. For a large one the kernel is asked to give it in large pieces: each small one
// takes it longer than to read what goes there.
func Room(size int64) []byte {
	const piece = 2 << 20
	room := make([]byte, size)
	if size < 2*piece {
		return room
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(room)))
	skip := (piece - start%piece) % piece
	whole := (uintptr(size) - skip) &^ (piece - 1)
	_ = unix.Madvise(room[skip:skip+whole], unix.MADV_HUGEPAGE) // advice is all it is
	return room
}
