//go:build !linux

package confine

import (
	"context"
	"errors"
	"os"
	"runtime"
)

// DelegatedCgroup exists on Linux only.
type DelegatedCgroup struct{}

// Cgroup is the cgroup of one command.
type Cgroup struct{ Procs, Hold *os.File }

var errLimitsUnsupported = errors.New("not on this system: " + runtime.GOOS)

// InspectLimitSupport finds nothing: only Linux has limits other than the timeout.
func InspectLimitSupport(context.Context, Limits, []string, bool) (LimitSupport, *DelegatedCgroup) {
	return LimitSupport{MemoryCgroup: errLimitsUnsupported, ProcessCgroup: errLimitsUnsupported, Rlimits: errLimitsUnsupported, ProcessRlimit: errLimitsUnsupported}, nil
}

// NewCommandCgroup always fails.
func (*DelegatedCgroup) NewCommandCgroup(string, CgroupLimits, CgroupLimits) (*Cgroup, error) {
	return nil, errLimitsUnsupported
}

// Close does nothing.
func (*Cgroup) Close() error { return nil }

// RemoveCgroups does nothing.
func RemoveCgroups(string) {}
