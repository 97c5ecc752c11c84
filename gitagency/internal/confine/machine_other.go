//go:build !linux

package confine

import (
	"runtime"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// InspectMachine reports that this system has nothing that walls are built from.
func InspectMachine() walls.Machine {
	return walls.Machine{System: runtime.GOOS, Arch: runtime.GOARCH, WhyNoLandlock: runtime.GOOS + " has none", WhyNoSeccomp: runtime.GOOS + " has none"}
}

// WhyNoOverlay returns the reason why there are no overlays.
func WhyNoOverlay(string) string { return "overlays exist on Linux only" }
