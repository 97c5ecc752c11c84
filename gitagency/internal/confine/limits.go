package confine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Limits limit what the commands of a sandbox may use. A zero value means no limit.
type Limits struct {
	Memory    int64         // bytes, of all processes together; nothing is swapped out
	Processes int           // concurrent processes and threads
	FileSize  int64         // bytes, of a file that is written
	Timeout   time.Duration // of one command
	Nice      int           // lowest niceness, up to MaxNice

	// BestEffort runs commands also where a limit cannot be enforced, or not in full.
	BestEffort bool

	bestEffortFor [limitKinds]bool // limits for which a command's own BestEffort applies; see NarrowedBy
}

// MaxNice is the greatest niceness.
const MaxNice = 19

// LimitKind is one of the limits.
type LimitKind int

// The limits, in the order in which they are listed.
const (
	MemoryLimit LimitKind = iota
	ProcessLimit
	FileSizeLimit
	TimeoutLimit
	NiceLimit

	limitKinds = 5
)

// LimitKinds lists the limits.
func LimitKinds() []LimitKind {
	return []LimitKind{MemoryLimit, ProcessLimit, FileSizeLimit, TimeoutLimit, NiceLimit}
}

func (k LimitKind) String() string {
	return [limitKinds]string{"memory", "processes", "file-size", "timeout", "nice"}[k]
}

// RecordKey returns the key of the limit in records.
func (k LimitKind) RecordKey() string {
	return [limitKinds]string{"memory", "processes", "file_size", "timeout_ms", "nice"}[k]
}

// Format formats a value of this limit for people.
func (k LimitKind) Format(value int64) string {
	switch k {
	case MemoryLimit, FileSizeLimit:
		return FormatSize(value)
	case TimeoutLimit:
		if value < 0 { // no limit
			return "-1"
		}
		return time.Duration(value).String()
	}
	return strconv.FormatInt(value, 10)
}

// Value returns the limit of a kind; zero is none. A timeout is in nanoseconds.
func (l Limits) Value(k LimitKind) int64 {
	return [limitKinds]int64{l.Memory, int64(l.Processes), l.FileSize, int64(l.Timeout), int64(l.Nice)}[k]
}

// Validate refuses invalid values.
func (l Limits) Validate() error {
	for _, k := range LimitKinds() {
		if l.Value(k) < 0 {
			return &BadLimitError{k, l.Value(k), "a positive number"}
		}
	}
	if l.Nice > MaxNice {
		return &BadLimitError{NiceLimit, int64(l.Nice), fmt.Sprintf("at most %d", MaxNice)}
	}
	return nil
}

// BadLimitError reports an invalid limit.
type BadLimitError struct {
	Limit LimitKind
	Value int64
	Want  string
}

func (e *BadLimitError) Error() string {
	return fmt.Sprintf("invalid %s limit %d: want %s", e.Limit, e.Value, e.Want)
}

// WiderError reports a limit that allows a command more than the sandbox's own limit.
type WiderError struct {
	Limit               LimitKind
	Requested, Recorded int64
}

func (e *WiderError) Error() string {
	return fmt.Sprintf("%s %s exceeds the limit of the sandbox: want %s", e.Limit, e.Limit.Format(e.Requested), e.Want())
}

// Want says what would have been allowed.
func (e *WiderError) Want() string {
	bound := "at most"
	if e.Limit == NiceLimit {
		bound = "at least"
	}
	return bound + " " + e.Limit.Format(e.Recorded)
}

// CheckWithin returns a *WiderError if one of the limits is wider than recorded. A limit that is not set in l is not
// wider, because the recorded one still applies; a timeout less than zero, which means none, is wider.
func (l Limits) CheckWithin(recorded Limits) error {
	for _, k := range LimitKinds() {
		requested, limit := l.Value(k), recorded.Value(k)
		wider := requested > limit
		switch k {
		case NiceLimit:
			wider = requested < limit
		case TimeoutLimit:
			wider = wider || requested < 0
		}
		if limit != 0 && requested != 0 && wider {
			return &WiderError{k, requested, limit}
		}
	}
	return nil
}

// NarrowedBy returns the limits of a command that asks for its own limits, which are within l: the limits of l,
// replaced by those of asked. BestEffort of the command does not loosen the limits of the sandbox.
func (l Limits) NarrowedBy(asked Limits) Limits {
	all := l
	for _, k := range LimitKinds() {
		if asked.Value(k) == 0 {
			continue
		}
		all.bestEffortFor[k] = l.Value(k) == 0 && asked.BestEffort
		switch k {
		case MemoryLimit:
			all.Memory = asked.Memory
		case ProcessLimit:
			all.Processes = asked.Processes
		case FileSizeLimit:
			all.FileSize = asked.FileSize
		case TimeoutLimit:
			all.Timeout = asked.Timeout
		case NiceLimit:
			all.Nice = asked.Nice
		}
	}
	return all
}

// LimitSupport says what a machine offers to enforce limits. Each field is nil, or the reason why it is not available.
type LimitSupport struct {
	MemoryCgroup  error // cgroup that limits memory
	ProcessCgroup error // cgroup that limits processes
	Rlimits       error // setting rlimits on a program before its first instruction
	ProcessRlimit error // RLIMIT_NPROC that is effective and counts the processes of a sandbox separately
}

// LimitPlan says what enforces each limit.
type LimitPlan struct {
	Enforced []Enforcement // one for each limit that is set

	// Limits of the command's cgroup; zero: none.
	CgroupMemory    int64
	CgroupProcesses int

	// Limits set on the program.
	Data, FileSize  int64 // Data limits each process separately
	Processes, Nice int

	Timeout time.Duration
}

// NeedsCgroup reports whether the plan needs a cgroup.
func (p LimitPlan) NeedsCgroup() bool { return p.CgroupMemory > 0 || p.CgroupProcesses > 0 }

// Enforcement says how a limit is enforced.
type Enforcement struct {
	Limit  LimitKind
	Value  int64 // as returned by Limits.Value
	By     Enforcer
	Detail string // the part of the limit that is not enforced, and why; empty when all of it is
}

// Enforcer is the mechanism that enforces a limit.
type Enforcer string

// The enforcers.
const (
	ByCgroup     Enforcer = "cgroup"
	ByRlimit     Enforcer = "rlimit"
	BySupervisor Enforcer = "supervisor"
	NotEnforced  Enforcer = "not enforced"
)

// UnenforceableError reports limits that cannot be enforced here, or not in full.
type UnenforceableError struct{ Limits []Enforcement }

func (e *UnenforceableError) Error() string {
	texts := make([]string, len(e.Limits))
	for i, l := range e.Limits {
		texts[i] = fmt.Sprintf("%s %s cannot be enforced on this machine: %s", l.Limit, l.Limit.Format(l.Value), l.Detail)
	}
	return strings.Join(texts, "\n")
}

// Plan chooses what enforces each limit. It refuses, with an *UnenforceableError, limits that cannot be enforced in
// full, unless BestEffort is set.
func (l Limits) Plan(m LimitSupport) (LimitPlan, error) {
	if err := l.Validate(); err != nil {
		return LimitPlan{}, err
	}
	plan := LimitPlan{Timeout: l.Timeout}
	var refused []Enforcement
	for _, k := range LimitKinds() {
		e := Enforcement{Limit: k, Value: l.Value(k), By: NotEnforced}
		if e.Value == 0 {
			continue
		}
		switch {
		case k == MemoryLimit && m.MemoryCgroup == nil:
			e.By, plan.CgroupMemory = ByCgroup, l.Memory
		case k == MemoryLimit && m.Rlimits == nil:
			// Not RLIMIT_AS: many programs reserve a thousand times the address space that they use.
			e.By, plan.Data = ByRlimit, l.Memory
			e.Detail = fmt.Sprintf("%v; each process can be limited, but not all together", m.MemoryCgroup)
		case k == MemoryLimit:
			e.Detail = errors.Join(m.MemoryCgroup, m.Rlimits).Error()
		case k == ProcessLimit && m.ProcessCgroup == nil:
			e.By, plan.CgroupProcesses = ByCgroup, l.Processes
		case k == ProcessLimit && m.ProcessRlimit == nil && m.Rlimits == nil:
			e.By, plan.Processes = ByRlimit, l.Processes
		case k == ProcessLimit:
			e.Detail = joinReasons(m.ProcessCgroup, m.ProcessRlimit, m.Rlimits)
		case k == TimeoutLimit:
			e.By = BySupervisor
		case m.Rlimits != nil:
			e.Detail = m.Rlimits.Error()
		case k == FileSizeLimit:
			e.By, plan.FileSize = ByRlimit, l.FileSize
		case k == NiceLimit:
			e.By, plan.Nice = BySupervisor, l.Nice
		}
		if e.Detail != "" && !l.BestEffort && !l.bestEffortFor[k] {
			refused = append(refused, e)
		}
		plan.Enforced = append(plan.Enforced, e)
	}
	if len(refused) > 0 {
		return LimitPlan{}, &UnenforceableError{refused}
	}
	return plan, nil
}

func joinReasons(all ...error) string {
	var texts []string
	for _, err := range all {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	return strings.Join(texts, "; ")
}

const wantSize = "a number of bytes such as 512m, 1.5g or 1048576"

// ErrSize reports an invalid size.
var ErrSize = errors.New("want " + wantSize)

// ParseSize parses a number of bytes, with k, m, g or t for powers of 1024: 512m, 2g, 1.5GiB, 1048576.
func ParseSize(s string) (int64, error) {
	suffix := strings.TrimLeft(s, "0123456789.")
	whole, fraction, hasPoint := strings.Cut(s[:len(s)-len(suffix)], ".")
	unit := strings.TrimSuffix(strings.ToLower(suffix), "b")
	power := 0
	if unit != "" {
		unit = strings.TrimSuffix(unit, "i")
		if power = strings.Index("kmgt", unit) + 1; power == 0 || len(unit) != 1 {
			return 0, ErrSize
		}
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	if shift := 10 * power; err != nil || n > math.MaxInt64>>shift {
		return 0, ErrSize
	}
	n <<= 10 * power
	if hasPoint {
		part, err := parseFraction(fraction, 1<<(10*power))
		if err != nil || power == 0 && strings.Trim(fraction, "0") != "" {
			return 0, ErrSize
		}
		n += part
	}
	if n == 0 || n > math.MaxInt64 {
		return 0, ErrSize
	}
	return int64(n), nil
}

// parseFraction returns the part of unit that the decimals of a number say, rounded down.
func parseFraction(decimals string, unit uint64) (uint64, error) {
	const most = 18 // decimals: with them, the scale below fits
	scale := uint64(1)
	for range min(len(decimals), most) {
		scale *= 10
	}
	n, err := strconv.ParseUint(decimals, 10, 64)
	if err != nil || len(decimals) > most {
		return 0, ErrSize
	}
	high, low := bits.Mul64(n, unit)
	part, _ := bits.Div64(high, low, scale) // high < scale, since n < scale
	return part, nil
}

// FormatSize formats a number of bytes in the largest unit that divides it.
func FormatSize(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := int64(1) << (40 - 10*i); n != 0 && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// CgroupLimits are the limits of a cgroup; zero: none.
type CgroupLimits struct {
	Memory    int64
	Processes int
}
