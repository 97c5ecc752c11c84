//go:build !linux

package confine

import "runtime"

// InspectMachine reports that this system has nothing that walls are built from.
func Look() Machine {
	return Machine{System: runtime.GOOS, Arch: runtime.GOARCH, NoLandlock: runtime.GOOS + " has none", NoSeccomp: runtime.GOOS + " has none"}
}
