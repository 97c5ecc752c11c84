//go:build !linux

package confine

import (
	"context"
	"errors"
	"os"
	"runtime"
)

// Cgroups are Linux's.
type Cgroups struct{}

// Cgroup is one for a command.
type Cgroup struct{ Procs, Hold *os.File }

var errNoLimits = errors.New("not on this system: " + runtime.GOOS)

// LookLimits finds nothing: limits but that of time are Linux's.
func LookLimits(context.Context, Limits, []string, bool) (LimitMachine, *Cgroups) {
	return LimitMachine{MemoryCgroup: errNoLimits, ProcessCgroup: errNoLimits, Rlimits: errNoLimits, Counted: errNoLimits}, nil
}

// Enter refuses.
func (*Cgroups) Enter(string, CgroupLimits, CgroupLimits) (*Cgroup, error) { return nil, errNoLimits }

// Close does nothing.
func (*Cgroup) Close() error { return nil }

// RemoveCgroups does nothing.
func RemoveCgroups(string) {}
