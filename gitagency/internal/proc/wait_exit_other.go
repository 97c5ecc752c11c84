//go:build !linux

package proc

import "time"

// WaitForExit waits for a moment: this system has no pidfd.
func WaitForExit(_ int, most time.Duration) { time.Sleep(min(most, 20*time.Millisecond)) }
