//go:build !linux

package proc

import "time"

// RunningTasks is not supported on this system.
func RunningTasks() map[string]time.Time { return nil }
