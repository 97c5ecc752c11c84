package gitagency

import (
	"encoding/json"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Limits bound the resources of the commands of a sandbox. A zero field is no limit.
type Limits struct {
	Memory    int64         `json:"memory,omitempty"`     // bytes, of all processes together; nothing is swapped out
	Processes int           `json:"processes,omitempty"`  // concurrent processes and threads
	FileSize  int64         `json:"file_size,omitempty"`  // bytes, of a file that is written
	Timeout   time.Duration `json:"timeout_ms,omitempty"` // of one command; in JSON in milliseconds, rounded up
	Nice      int           `json:"nice,omitempty"`       // lowest nice value, up to 19

	// BestEffort runs commands also where a limit cannot be enforced, or not in full.
	BestEffort bool `json:"best_effort,omitempty"`
}

func newLimits(l confine.Limits) Limits {
	return Limits{Memory: l.Memory, Processes: l.Processes, FileSize: l.FileSize, Timeout: l.Timeout, Nice: l.Nice, BestEffort: l.BestEffort}
}

func (l Limits) internal() confine.Limits {
	return confine.Limits{Memory: l.Memory, Processes: l.Processes, FileSize: l.FileSize, Timeout: l.Timeout, Nice: l.Nice, BestEffort: l.BestEffort}
}

// limitsJSON has the fields of Limits and the encoding that their tags describe.
type limitsJSON Limits

// MarshalJSON encodes limits as in the record of an invocation.
func (l Limits) MarshalJSON() ([]byte, error) {
	l.Timeout = (l.Timeout + time.Millisecond - 1) / time.Millisecond
	return json.Marshal(limitsJSON(l))
}

// UnmarshalJSON decodes limits that MarshalJSON encoded.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var decoded limitsJSON
	if err := json.Unmarshal(data, &decoded); err != nil {
		return err
	}
	decoded.Timeout *= time.Millisecond
	*l = Limits(decoded)
	return nil
}

// LimitKind names one of the limits.
type LimitKind int

// Kinds of limits.
const (
	MemoryLimit LimitKind = iota
	ProcessLimit
	FileSizeLimit
	TimeoutLimit
	NiceLimit
)

// String returns the name of the limit, as in the flags of the command.
func (k LimitKind) String() string { return confine.LimitKind(k).String() }

// Format formats a value of this limit for people, without rounding. A timeout is in nanoseconds.
func (k LimitKind) Format(value int64) string { return confine.LimitKind(k).Format(value) }

// Parse parses a value of this limit: a number of bytes with the suffixes k, m, g and t for powers of 1024; a number of
// processes and threads; a Go duration that is not zero, or -1 for no limit, returned in nanoseconds; or a positive nice
// value, because a lower one needs privileges that commands in a sandbox never get.
func (k LimitKind) Parse(text string) (int64, error) {
	switch k {
	case ProcessLimit:
		n, err := sandbox.ParseProcesses(text)
		return int64(n), publicError(err)
	case TimeoutLimit:
		d, err := settings.ParseTimeout(text)
		return int64(d), publicError(err)
	case NiceLimit:
		n, err := sandbox.ParseNice(text)
		return int64(n), publicError(err)
	}
	return edge(sandbox.ParseSize(text))
}

// EnforcedLimit tells how a limit is enforced. One with a Detail is not enforced, or not in full.
type EnforcedLimit struct {
	Limit  LimitKind
	Value  int64  // in bytes, nanoseconds or numbers
	By     string // mechanism: "cgroup", "rlimit", "supervisor" or "not enforced"
	Detail string // the part of the limit that is not enforced, and why; empty when all of it is
}

func newEnforcedLimit(l confine.Enforcement) EnforcedLimit {
	return EnforcedLimit{Limit: LimitKind(l.Limit), Value: l.Value, By: string(l.By), Detail: l.Detail}
}
