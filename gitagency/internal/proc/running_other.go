//go:build !linux

package proc

import "io/fs"

// Running cannot be told on this system.
func Running(func(name string) bool) ([]Process, bool) { return nil, false }

// Supervisors cannot be found on this system.
func Supervisors(string) []int { return nil }

// Overseen cannot be told on this system, where there are no rooms.
func Overseen(int) int { return 1 }

// Programs cannot be told on this system.
func Programs(string) []string { return nil }

// Holders cannot be told on this system.
func Holders(string) []string { return nil }

// Reaches cannot be told on this system.
func (Process) Reaches([]fs.FileInfo, ...string) bool { return true }
