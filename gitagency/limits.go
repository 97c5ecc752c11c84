package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// What limits are made of, under the names callers may rely on.
type (
	// Limits bound what the commands of a sandbox may use. What is zero is not bound.
	Limits = confine.Limits
	// LimitsMade are the limits that a sandbox was started with, as they are on record.
	LimitsMade = store.Limits
	// EnforcedLimit is how a limit is enforced. One with a Detail is not, or not in full.
	EnforcedLimit = confine.Enforcement
	// LimitKind is one of the limits.
	LimitKind = confine.LimitKind
)

// The limits there are.
const (
	MemoryLimit   = confine.MemoryLimit
	ProcessLimit  = confine.ProcessLimit
	FileSizeLimit = confine.FileSizeLimit
	TimeoutLimit  = confine.TimeoutLimit
	NiceLimit     = confine.NiceLimit
)

// ParseSize reads a number of bytes, with k, m, g or t for powers of 1024.
func ParseSize(s string) (int64, error) {
	size, err := confine.ParseSize(s)
	if err != nil {
		return 0, &InvalidError{What: "size", Value: s, Want: "a number of bytes such as 512m, 1.5g or 1048576"}
	}
	return size, nil
}

// ParseProcesses reads how many processes there may be.
func ParseProcesses(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, &InvalidError{What: "number", Value: s, Want: "how many processes and threads there may be, such as 200"}
	}
	return n, nil
}

// ParseNice reads a niceness. To be less nice than one is takes rights that nobody is given here.
func ParseNice(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > confine.MostNice {
		return 0, &InvalidError{What: "niceness", Value: s, Want: fmt.Sprintf("a number from 1 to %d", confine.MostNice)}
	}
	return n, nil
}

// FormatSize is a number of bytes for people, to the byte.
func FormatSize(n int64) string { return confine.FormatSize(n) }

// chooseLimits refuses limits that cannot be enforced here, before anything is created.
func (r *Repository) chooseLimits(ctx context.Context, l Limits) (LimitsMade, error) {
	if err := checkLimits(l); err != nil {
		return LimitsMade{}, err
	}
	machine, _ := confine.LookLimits(ctx, l, r.opts.Env, true)
	plan, err := l.Plan(machine)
	if err != nil {
		return LimitsMade{}, err
	}
	for _, e := range plan.Enforced {
		if e.Detail != "" {
			r.warn("%s %s will not hold here, or not in full: %s", e.Limit, e.Limit.Text(e.Value), e.Detail)
		}
	}
	return LimitsMade{
		Memory: l.Memory, Processes: l.Processes, FileSize: l.FileSize, Nice: l.Nice, BestEffort: l.BestEffort,
		TimeoutMS: int64((l.Timeout + time.Millisecond - 1) / time.Millisecond),
	}, nil
}

func checkLimits(l Limits) error {
	var bad *confine.BadLimitError
	if err := l.Check(); errors.As(err, &bad) {
		return &InvalidError{What: bad.Limit.String(), Value: strconv.FormatInt(bad.Value, 10), Want: bad.Want}
	}
	return nil
}

// limitsMade reads limits from a record.
func limitsMade(m LimitsMade) Limits {
	return Limits{
		Memory: m.Memory, Processes: m.Processes, FileSize: m.FileSize, Nice: m.Nice, BestEffort: m.BestEffort,
		Timeout: time.Duration(m.TimeoutMS) * time.Millisecond,
	}
}

// bounds is what bounds one command.
type bounds struct {
	program  proc.Limits
	timeout  time.Duration
	hold     []*os.File // to be kept open by whoever runs it
	enforced []EnforcedLimit

	cgroup *confine.Cgroup
	warn   func(format string, args ...any)
}

// bound prepares what bounds a command: the limits of the sandbox, and those of the command where they are
// tighter. A timeout that is nobody's choice, or none, gives way to that of the sandbox.
func (s *Sandbox) bound(ctx context.Context, opts ExecOptions, made Limits, timeout time.Duration) (_ bounds, err error) {
	asked := opts.Limits
	asked.Timeout = opts.Timeout
	var wider *confine.WiderError
	if err := asked.Within(made); errors.As(err, &wider) {
		return bounds{}, &InvalidError{What: wider.Limit.String(), Value: wider.Limit.Text(wider.Asked), Want: wider.Want() + ", with which sandbox " + s.ID + " was started"}
	}
	asked.Timeout = max(timeout, 0)
	if err := checkLimits(asked); err != nil {
		return bounds{}, err
	}
	if made.Timeout > 0 && (asked.Timeout == 0 || asked.Timeout > made.Timeout) {
		asked.Timeout = made.Timeout
	}
	limits := made.Narrow(asked)
	machine, cgroups := confine.LookLimits(ctx, limits, s.repo.opts.Env, made.BestEffort || asked.BestEffort)
	plan, err := limits.Plan(machine)
	if err != nil {
		return bounds{}, &SetupError{ID: s.ID, Err: err}
	}
	b := bounds{
		program: proc.Limits{FileSize: plan.FileSize, Data: plan.Data, Processes: plan.Processes, Nice: plan.Nice},
		timeout: plan.Timeout, enforced: plan.Enforced, warn: s.repo.warn,
	}
	if !plan.Cgroup() {
		return b, nil
	}
	whole := confine.CgroupLimits{Memory: made.Memory, Processes: made.Processes}
	if plan.CgroupMemory == 0 { // what there is does not bound it
		whole.Memory = 0
	}
	if plan.CgroupProcesses == 0 {
		whole.Processes = 0
	}
	b.cgroup, err = cgroups.Enter(s.ID, whole, confine.CgroupLimits{Memory: plan.CgroupMemory, Processes: plan.CgroupProcesses})
	if err != nil {
		return bounds{}, &SetupError{ID: s.ID, Err: fmt.Errorf("make a cgroup: %w", err)}
	}
	b.program.Cgroup, b.hold = b.cgroup.Procs, []*os.File{b.cgroup.Hold}
	return b, nil
}

func (b bounds) close() {
	if b.cgroup == nil {
		return
	}
	if err := b.cgroup.Close(); err != nil {
		b.warn("remove its cgroup: %v", err)
	}
}

// enforcers are the limits for the history of an invocation, but for that of time.
func enforcers(limits []EnforcedLimit) map[string]string {
	by := map[string]string{}
	for _, l := range limits {
		if l.Limit != TimeoutLimit {
			by[l.Limit.Key()] = string(l.By)
		}
	}
	return by
}
