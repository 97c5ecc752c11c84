//go:build !linux

package proc

import "io/fs"

// ListProcesses is not supported on this system.
func ListProcesses(func(name string) bool) ([]Process, bool) { return nil, false }

// FindSupervisors is not supported on this system.
func FindSupervisors(string) []int { return nil }

// CountTasks returns 1: there are no namespaces on this system.
func CountTasks(int) int { return 1 }

// TaskCommands is not supported on this system.
func TaskCommands(string) []string { return nil }

// FileUsers is not supported on this system.
func FileUsers(string) []string { return nil }

// UsesDirs is not supported on this system, and returns true to be on the safe side.
func (Process) UsesDirs([]fs.FileInfo, ...string) bool { return true }
