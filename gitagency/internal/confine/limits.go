package confine

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Limits bound what the commands of a sandbox may use. What is zero is not bound.
type Limits struct {
	Memory    int64         // bytes, of all processes together, and nothing of it swapped out
	Processes int           // processes and threads at a time
	FileSize  int64         // bytes, of a file that is written
	Timeout   time.Duration // of a command
	Nice      int           // the least niceness, up to MostNice

	// BestEffort runs commands also where a limit cannot be enforced, or not in full.
	BestEffort bool

	lenient [limitKinds]bool // the limits that BestEffort alone applies to; see Narrow
}

// MostNice is the greatest niceness there is.
const MostNice = 19

// LimitKind is one of the limits.
type LimitKind int

// The limits there are, in the order in which they are listed.
const (
	MemoryLimit LimitKind = iota
	ProcessLimit
	FileSizeLimit
	TimeoutLimit
	NiceLimit

	limitKinds = 5
)

// LimitKinds lists the limits there are.
func LimitKinds() []LimitKind {
	return []LimitKind{MemoryLimit, ProcessLimit, FileSizeLimit, TimeoutLimit, NiceLimit}
}

func (k LimitKind) String() string {
	return [limitKinds]string{"memory", "processes", "file-size", "timeout", "nice"}[k]
}

// Key is what the limit is called in records.
func (k LimitKind) Key() string {
	return [limitKinds]string{"memory", "processes", "file_size", "timeout_ms", "nice"}[k]
}

// Text is a value of this limit as people write it.
func (k LimitKind) Text(value int64) string {
	switch k {
	case MemoryLimit, FileSizeLimit:
		return FormatSize(value)
	case TimeoutLimit:
		if value < 0 { // for ever
			return "-1"
		}
		return time.Duration(value).String()
	}
	return strconv.FormatInt(value, 10)
}

// Value is the limit of a kind; zero is none. That of a timeout counts nanoseconds.
func (l Limits) Value(k LimitKind) int64 {
	return [limitKinds]int64{l.Memory, int64(l.Processes), l.FileSize, int64(l.Timeout), int64(l.Nice)}[k]
}

// Check refuses values that mean nothing.
func (l Limits) Check() error {
	for _, k := range LimitKinds() {
		if l.Value(k) < 0 {
			return &BadLimitError{k, l.Value(k), "more than nothing"}
		}
	}
	if l.Nice > MostNice {
		return &BadLimitError{NiceLimit, int64(l.Nice), fmt.Sprintf("at most %d", MostNice)}
	}
	return nil
}

// BadLimitError is a limit that means nothing.
type BadLimitError struct {
	Limit LimitKind
	Value int64
	Want  string
}

func (e *BadLimitError) Error() string {
	return fmt.Sprintf("invalid %s limit %d: want %s", e.Limit, e.Value, e.Want)
}

// WiderError is a limit that lets a command use more than was agreed when its sandbox was made.
type WiderError struct {
	Limit           LimitKind
	Asked, Recorded int64
}

func (e *WiderError) Error() string {
	return fmt.Sprintf("%s %s is wider than that of the sandbox: want %s", e.Limit, e.Limit.Text(e.Asked), e.Want())
}

// Want says what would have been allowed.
func (e *WiderError) Want() string {
	bound := "at most"
	if e.Limit == NiceLimit {
		bound = "at least"
	}
	return bound + " " + e.Limit.Text(e.Recorded)
}

// Within refuses limits of which one is wider than what is recorded: a *WiderError. What is not bound by l
// is bound by the record all the same, so it is not wider; a timeout that never comes, less than zero, is.
func (l Limits) Within(recorded Limits) error {
	for _, k := range LimitKinds() {
		asked, is := l.Value(k), recorded.Value(k)
		wider := asked > is
		switch k {
		case NiceLimit:
			wider = asked < is
		case TimeoutLimit:
			wider = wider || asked < 0
		}
		if is != 0 && asked != 0 && wider {
			return &WiderError{k, asked, is}
		}
	}
	return nil
}

// Narrow is what a command is bound by that is run with limits of its own, which are within: each of those
// of the sandbox, but for what is asked for. That best effort will do, asked for with the command, does not
// loosen what the sandbox was made with.
func (l Limits) Narrow(asked Limits) Limits {
	all := l
	for _, k := range LimitKinds() {
		if asked.Value(k) == 0 {
			continue
		}
		all.lenient[k] = l.Value(k) == 0 && asked.BestEffort
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

// LimitMachine is what a machine offers to enforce limits with. Each is nil, or why it is not to be had.
type LimitMachine struct {
	MemoryCgroup  error // a cgroup that bounds memory
	ProcessCgroup error // a cgroup that bounds processes
	Rlimits       error // limits on a program that has not begun
	Counted       error // RLIMIT_NPROC, that counts the processes of a sandbox apart and is not for show
}

// LimitPlan says what enforces each limit.
type LimitPlan struct {
	Enforced []Enforcement // one for each limit there is

	// What a cgroup around the command bounds; zero is nothing.
	CgroupMemory    int64
	CgroupProcesses int

	// What is set on the program.
	Data, FileSize  int64 // Data bounds each process by itself
	Processes, Nice int

	Timeout time.Duration
}

// Cgroup reports whether one is needed.
func (p LimitPlan) Cgroup() bool { return p.CgroupMemory > 0 || p.CgroupProcesses > 0 }

// Enforcement is how a limit is enforced.
type Enforcement struct {
	Limit  LimitKind
	Value  int64 // as by Limits.Value
	By     Enforcer
	Detail string // what of the limit does not hold, and why; empty when all of it does
}

// Enforcer is what enforces a limit.
type Enforcer string

// The enforcers there are.
const (
	ByCgroup     Enforcer = "cgroup"
	ByRlimit     Enforcer = "rlimit"
	BySupervisor Enforcer = "supervisor"
	NotEnforced  Enforcer = "not enforced"
)

// UnenforceableError is limits that cannot be enforced here, or not in full.
type UnenforceableError struct{ Limits []Enforcement }

func (e *UnenforceableError) Error() string {
	texts := make([]string, len(e.Limits))
	for i, l := range e.Limits {
		texts[i] = fmt.Sprintf("%s %s cannot be enforced here: %s", l.Limit, l.Limit.Text(l.Value), l.Detail)
	}
	return strings.Join(texts, "\n")
}

// Plan chooses what enforces each limit. It refuses, with an *UnenforceableError, what cannot be enforced in
// full, unless best effort will do.
func (l Limits) Plan(m LimitMachine) (LimitPlan, error) {
	if err := l.Check(); err != nil {
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
			// Not the address space, of which many programs reserve a thousand times what they use.
			e.By, plan.Data = ByRlimit, l.Memory
			e.Detail = fmt.Sprintf("%v; each process by itself can be bound, but not all together", m.MemoryCgroup)
		case k == MemoryLimit:
			e.Detail = errors.Join(m.MemoryCgroup, m.Rlimits).Error()
		case k == ProcessLimit && m.ProcessCgroup == nil:
			e.By, plan.CgroupProcesses = ByCgroup, l.Processes
		case k == ProcessLimit && m.Counted == nil && m.Rlimits == nil:
			e.By, plan.Processes = ByRlimit, l.Processes
		case k == ProcessLimit:
			e.Detail = reasons(m.ProcessCgroup, m.Counted, m.Rlimits)
		case k == TimeoutLimit:
			e.By = BySupervisor
		case m.Rlimits != nil:
			e.Detail = m.Rlimits.Error()
		case k == FileSizeLimit:
			e.By, plan.FileSize = ByRlimit, l.FileSize
		case k == NiceLimit:
			e.By, plan.Nice = BySupervisor, l.Nice
		}
		if e.Detail != "" && !l.BestEffort && !l.lenient[k] {
			refused = append(refused, e)
		}
		plan.Enforced = append(plan.Enforced, e)
	}
	if len(refused) > 0 {
		return LimitPlan{}, &UnenforceableError{refused}
	}
	return plan, nil
}

func reasons(all ...error) string {
	var texts []string
	for _, err := range all {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	return strings.Join(texts, "; ")
}

const wantSize = "bytes, as in 512m, 1.5g or 1048576"

// ErrSize is a size that means nothing.
var ErrSize = errors.New("want " + wantSize)

// ParseSize reads a number of bytes, with k, m, g or t for powers of 1024: 512m, 2g, 1.5GiB, 1048576.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimLeft(s, "0123456789.")
	number, unit := s[:len(s)-len(digits)], strings.ToLower(digits)
	if number == "" || strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") || len(number) > 30 {
		return 0, ErrSize
	}
	unit = strings.TrimSuffix(unit, "b")
	power := 0
	if unit != "" {
		unit = strings.TrimSuffix(unit, "i")
		if power = strings.Index("kmgt", unit) + 1; power == 0 || len(unit) != 1 {
			return 0, ErrSize
		}
	}
	size, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, ErrSize
	}
	size.Mul(size, new(big.Rat).SetInt64(1<<(10*power)))
	whole := new(big.Int).Quo(size.Num(), size.Denom())
	if whole.Sign() <= 0 || !whole.IsInt64() || power == 0 && !size.IsInt() {
		return 0, ErrSize
	}
	return whole.Int64(), nil
}

// FormatSize is a number of bytes in the largest unit of which there is a whole number.
func FormatSize(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := int64(1) << (40 - 10*i); n != 0 && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// CgroupLimits is what a cgroup bounds; zero is nothing.
type CgroupLimits struct {
	Memory    int64
	Processes int
}
