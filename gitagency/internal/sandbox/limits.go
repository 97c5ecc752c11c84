package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// ParseSize parses a number of bytes, with the suffixes k, m, g and t for powers of 1024.
func ParseSize(s string) (int64, error) {
	size, err := confine.ParseSize(s)
	if err != nil {
		return 0, &fault.InvalidError{What: "size", Value: s, Want: "a number of bytes such as 512m, 1.5g or 1048576"}
	}
	return size, nil
}

// ParseProcesses parses a maximum number of processes and threads.
func ParseProcesses(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, &fault.InvalidError{What: "number", Value: s, Want: "a number of processes and threads, such as 200"}
	}
	return n, nil
}

// ParseNice parses a nice value. Only positive values are valid: a lower niceness needs privileges that commands in a
// sandbox never get.
func ParseNice(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > confine.MaxNice {
		return 0, &fault.InvalidError{What: "niceness", Value: s, Want: fmt.Sprintf("a number from 1 to %d", confine.MaxNice)}
	}
	return n, nil
}

// EnforceableLimits returns limits in the form of a record. It refuses limits that this machine cannot enforce,
// before anything is created.
func EnforceableLimits(ctx context.Context, r *core.Repository, l confine.Limits) (store.Limits, error) {
	if err := validateLimits(l); err != nil {
		return store.Limits{}, err
	}
	machine, _ := confine.InspectLimitSupport(ctx, l, r.Opts.Env, true)
	plan, err := l.Plan(machine)
	if err != nil {
		return store.Limits{}, err
	}
	for _, e := range plan.Enforced {
		if e.Detail != "" {
			r.Warn("%s %s cannot be enforced on this machine, or only in part: %s", e.Limit, e.Limit.Format(e.Value), e.Detail)
		}
	}
	return limitsToRecord(l), nil
}

// ValidLimits returns limits in the form of a record, for another machine that will enforce them. It refuses malformed ones.
func ValidLimits(l confine.Limits) (store.Limits, error) { return limitsToRecord(l), validateLimits(l) }

func limitsToRecord(l confine.Limits) store.Limits {
	return store.Limits{
		Memory: l.Memory, Processes: l.Processes, FileSize: l.FileSize, Nice: l.Nice, BestEffort: l.BestEffort,
		TimeoutMS: int64((l.Timeout + time.Millisecond - 1) / time.Millisecond),
	}
}

// validateLimits refuses malformed limits with an *InvalidError.
func validateLimits(l confine.Limits) error {
	var bad *confine.BadLimitError
	if err := l.Validate(); errors.As(err, &bad) {
		return &fault.InvalidError{What: bad.Limit.String(), Value: strconv.FormatInt(bad.Value, 10), Want: bad.Want}
	}
	return nil
}

// LimitsFromRecord converts the limits of a record.
func LimitsFromRecord(m store.Limits) confine.Limits {
	return confine.Limits{
		Memory: m.Memory, Processes: m.Processes, FileSize: m.FileSize, Nice: m.Nice, BestEffort: m.BestEffort,
		Timeout: time.Duration(m.TimeoutMS) * time.Millisecond,
	}
}

// commandLimits are the prepared limits of one command.
type commandLimits struct {
	procLimits proc.Limits
	timeout    time.Duration
	holdOpen   []*os.File // files that the process which runs the command has to keep open
	enforced   []confine.Enforcement

	cgroup *confine.Cgroup
	warn   func(format string, args ...any)
}

// prepareLimits prepares the limits of a command: those of the sandbox, narrowed by those of the command. The
// sandbox's timeout bounds timeout too, also where that is a default or none. An explicit limit that is wider than
// the sandbox's is refused.
func (s *Sandbox) prepareLimits(ctx context.Context, opts ExecOptions, made confine.Limits, timeout time.Duration) (_ commandLimits, err error) {
	asked := opts.Limits
	asked.Timeout = opts.Timeout
	var wider *confine.WiderError
	if err := asked.CheckWithin(made); errors.As(err, &wider) {
		return commandLimits{}, &fault.InvalidError{What: wider.Limit.String(), Value: wider.Limit.Format(wider.Requested), Want: wider.Want() + ", the limit of sandbox " + s.ID}
	}
	asked.Timeout = max(timeout, 0)
	if err := validateLimits(asked); err != nil {
		return commandLimits{}, err
	}
	if made.Timeout > 0 && (asked.Timeout == 0 || asked.Timeout > made.Timeout) {
		asked.Timeout = made.Timeout
	}
	limits := made.NarrowedBy(asked)
	machine, cgroups := confine.InspectLimitSupport(ctx, limits, s.Repo.Opts.Env, made.BestEffort || asked.BestEffort)
	plan, err := limits.Plan(machine)
	if err != nil {
		return commandLimits{}, &fault.SetupError{ID: s.ID, Err: err}
	}
	b := commandLimits{
		procLimits: proc.Limits{FileSize: plan.FileSize, Data: plan.Data, Processes: plan.Processes, Nice: plan.Nice},
		timeout:    plan.Timeout, enforced: plan.Enforced, warn: s.Repo.Warn,
	}
	if !plan.NeedsCgroup() {
		return b, nil
	}
	whole := confine.CgroupLimits{Memory: made.Memory, Processes: made.Processes}
	if plan.CgroupMemory == 0 { // the cgroup does not bound memory here
		whole.Memory = 0
	}
	if plan.CgroupProcesses == 0 {
		whole.Processes = 0
	}
	b.cgroup, err = cgroups.NewCommandCgroup(s.ID, whole, confine.CgroupLimits{Memory: plan.CgroupMemory, Processes: plan.CgroupProcesses})
	if err != nil {
		return commandLimits{}, &fault.SetupError{ID: s.ID, Err: fmt.Errorf("create a cgroup: %w", err)}
	}
	b.procLimits.Cgroup, b.holdOpen = b.cgroup.Procs, []*os.File{b.cgroup.Hold}
	return b, nil
}

func (b commandLimits) close() {
	if b.cgroup == nil {
		return
	}
	if err := b.cgroup.Close(); err != nil {
		b.warn("remove the cgroup of the command: %v", err)
	}
}

// limitEnforcers maps the enforced limits to their mechanisms, for the event log of an invocation. The timeout is
// left out.
func limitEnforcers(limits []confine.Enforcement) map[string]string {
	by := map[string]string{}
	for _, l := range limits {
		if l.Limit != confine.TimeoutLimit {
			by[l.Limit.RecordKey()] = string(l.By)
		}
	}
	return by
}
