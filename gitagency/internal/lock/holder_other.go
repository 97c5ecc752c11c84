//go:build !linux

package lock

import "os"

// findProcesses finds none: this system does not show which process holds a lock.
func findProcesses(*os.File, int) []process { return nil }
