//go:build !linux

package confine

import (
	"context"
	"errors"
	"os"
	"runtime"
)

// DelegatedCgroup exists on Linux only.
type Cgroups struct{}

// Cgroup is the cgroup of one command.
type Cgroup struct{ Procs, Hold *os.File }

var errNoLimits = errors.New("not on this system: " + runtime.GOOS)

// InspectLimitSupport finds nothing: only Linux has limits other than the timeout.
func LookLimits(context.Context, Limits, []string, bool) (LimitMachine, *Cgroups) {
	return LimitMachine{MemoryCgroup: errNoLimits, ProcessCgroup: errNoLimits, Rlimits: errNoLimits, Counted: errNoLimits}, nil
}

// NewCommandCgroup always fails.
func (*Cgroups) Enter(string, CgroupLimits, CgroupLimits) (*Cgroup, error) { return nil, errNoLimits }

// Close does nothing.
func (*Cgroup) Close() error { return nil }

// RemoveCgroups does nothing.
func RemoveCgroups(string) {}
