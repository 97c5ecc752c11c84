//go:build !linux

package confine

import "runtime"

// InspectMachine reports that this system has nothing that walls are built from.
func InspectMachine() Machine {
	return Machine{System: runtime.GOOS, Arch: runtime.GOARCH, WhyNoLandlock: runtime.GOOS + " has none", WhyNoSeccomp: runtime.GOOS + " has none"}
}
