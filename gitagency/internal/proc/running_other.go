//go:build !linux

package proc

import "io/fs"

// ListProcesses is not supported on this system.
func Running(func(name string) bool) ([]Process, bool) { return nil, false }

// FindSupervisors is not supported on this system.
func Supervisors(string) []int { return nil }

// CountTasks returns 1: there are no namespaces on this system.
func Overseen(int) int { return 1 }

// TaskCommands is not supported on this system.
func Programs(string) []string { return nil }

// FileUsers is not supported on this system.
func Holders(string) []string { return nil }

// UsesDirs is not supported on this system, and returns true to be on the safe side.
func (Process) Reaches([]fs.FileInfo, ...string) bool { return true }
