package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// InspectLimitSupport finds out what this machine offers to enforce these limits. It tries nothing that they do not
// need and, unless all is set, nothing slow whose failure would stop the command later anyway. The cgroup is nil when
// there is none.
func InspectLimitSupport(ctx context.Context, l Limits, env []string, all bool) (LimitSupport, *DelegatedCgroup) {
	var m LimitSupport
	if l.Processes > 0 || l.FileSize > 0 || l.Nice > 0 || l.Memory > 0 {
		m.Rlimits = checkPtraceScope(os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"))
	}
	var wanted []string
	if l.Memory > 0 {
		wanted = append(wanted, memoryController)
	}
	if l.Processes > 0 {
		wanted = append(wanted, pidsController)
	}
	if len(wanted) == 0 {
		return m, nil
	}
	cgroups, err := findDelegatedCgroup(hostCgroupFS(), wanted...)
	m.MemoryCgroup, m.ProcessCgroup = cgroups.missingController(memoryController, err), cgroups.missingController(pidsController, err)
	if l.Processes > 0 && m.ProcessCgroup != nil {
		m.ProcessRlimit = checkProcessRlimit(ctx, env, all)
	}
	return m, cgroups
}

func (c *DelegatedCgroup) missingController(controller string, err error) error {
	if c != nil && !slices.Contains(c.controllers, controller) {
		return fmt.Errorf("%s has no %s controller for its children", c.dir, controller)
	}
	return err
}

// checkPtraceScope checks that a program may be traced: limits are set while it is traced, which an administrator can
// forbid.
func checkPtraceScope(scope []byte, _ error) error {
	if strings.TrimSpace(string(scope)) == "3" {
		return errors.New("ptrace is forbidden (kernel.yama.ptrace_scope is 3)")
	}
	return nil
}

// checkProcessRlimit finds out whether RLIMIT_NPROC counts the processes of a sandbox separately.
func checkProcessRlimit(ctx context.Context, env []string, try bool) error {
	if os.Geteuid() == 0 {
		return errors.New("without it, the kernel does not limit the processes of root")
	}
	if major, minor := kernelVersion(kernelRelease()); major < 5 || major == 5 && minor < 14 {
		return errors.New("this kernel counts all processes of a user together; Linux 5.14 and later do not")
	}
	if !try {
		return nil
	}
	switch o := (prober{env: env, timeout: 3 * time.Second}).tryPIDNamespace(ctx); {
	case o.succeeded() || o.missingProgram != "": // it is tried again when the command is run
		return nil
	case o.refusedErr != nil:
		return fmt.Errorf("no user namespaces, in which processes are counted separately: %w", o.refusedErr)
	case o.otherErr != nil:
		return o.otherErr
	default:
		return errors.New(o.stderrLine)
	}
}

func kernelVersion(release string) (major, minor int) {
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // an unreadable release counts as old
	return major, minor
}
