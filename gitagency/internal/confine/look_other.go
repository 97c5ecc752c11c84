//go:build !linux

package confine

import "runtime"

// Look asks what this machine offers: nothing of what walls are built from.
func Look() Machine {
	return Machine{System: runtime.GOOS, Arch: runtime.GOARCH, NoLandlock: runtime.GOOS + " has none", NoSeccomp: runtime.GOOS + " has none"}
}
