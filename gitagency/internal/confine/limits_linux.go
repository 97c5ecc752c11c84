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
func LookLimits(ctx context.Context, l Limits, env []string, all bool) (LimitMachine, *Cgroups) {
	var m LimitMachine
	if l.Processes > 0 || l.FileSize > 0 || l.Nice > 0 || l.Memory > 0 {
		m.Rlimits = tracing(os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"))
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
	cgroups, err := findCgroups(realCgroups(), wanted...)
	m.MemoryCgroup, m.ProcessCgroup = cgroups.lacks(memoryController, err), cgroups.lacks(pidsController, err)
	if l.Processes > 0 && m.ProcessCgroup != nil {
		m.Counted = counted(ctx, env, all)
	}
	return m, cgroups
}

func (c *Cgroups) lacks(controller string, err error) error {
	if c != nil && !slices.Contains(c.offered, controller) {
		return fmt.Errorf("%s has no %s controller to hand on", c.parent, controller)
	}
	return err
}

// checkPtraceScope checks that a program may be traced: limits are set while it is traced, which an administrator can
// forbid.
func tracing(scope []byte, _ error) error {
	if strings.TrimSpace(string(scope)) == "3" {
		return errors.New("nobody may trace a program here (kernel.yama.ptrace_scope is 3)")
	}
	return nil
}

// checkProcessRlimit finds out whether RLIMIT_NPROC counts the processes of a sandbox separately.
func counted(ctx context.Context, env []string, try bool) error {
	if os.Geteuid() == 0 {
		return errors.New("the kernel does not bound the processes of root by anything else")
	}
	if major, minor := kernelVersion(release()); major < 5 || major == 5 && minor < 14 {
		return errors.New("this kernel counts all processes of a user together; 5.14 and later do not")
	}
	if !try {
		return nil
	}
	switch o := (laboratory{env: env, patience: 3 * time.Second}).tryPIDs(ctx); {
	case o.fine() || o.absent != "": // it is tried again when the command is run
		return nil
	case o.refused != nil:
		return fmt.Errorf("no user namespaces, in which processes are counted apart: %w", o.refused)
	case o.mishap != nil:
		return o.mishap
	default:
		return errors.New(o.said)
	}
}

func kernelVersion(release string) (major, minor int) {
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // an unreadable release counts as old
	return major, minor
}
