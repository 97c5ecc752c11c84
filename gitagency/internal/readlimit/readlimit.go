// Package readlimit says how much work the host spends on data that an agent wrote: files of a tree, ignore and
// attribute rules, an index, packs. The packages that read such data enforce the limits.
package readlimit

import (
	"fmt"
	"time"
)

// Limits bound one read of data from a sandbox. A field that is zero is not limited.
type Limits struct {
	Time     time.Duration // processor time of each git process
	Memory   int64         // bytes of private memory of each git process
	Output   int64         // bytes that each git process may print, and that a file of rules may have
	Inflated int64         // bytes of all objects together, uncompressed and with their deltas applied
}

// Default returns the limits that apply unless agency.readLimits sets others.
func Default() Limits {
	return Limits{Time: time.Minute, Memory: 2 << 30, Output: 256 << 20, Inflated: 16 << 30}
}

// The names of the limits in agency.readLimits and in an ExceededError.
const (
	Time     = "time"
	Memory   = "memory"
	Output   = "output"
	Inflated = "inflated"
)

// ExceededError reports data of a sandbox that needs more work than a limit allows. Nothing was taken over.
type ExceededError struct {
	What  string // the data, such as "the pack with its new commits"
	Limit string // name of the limit
	Value string // its value, for a message
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("%s exceeds the limit %s of agency.readLimits, %s", e.What, e.Limit, e.Value)
}

// CheckSize returns an *ExceededError if data of this size exceeds the limit with this name.
func (l Limits) CheckSize(what, name string, size int64) error {
	limit := map[string]int64{Memory: l.Memory, Output: l.Output, Inflated: l.Inflated}[name]
	if limit == 0 || size <= limit {
		return nil
	}
	return l.Exceeded(what, name)
}

// Exceeded returns the error for data that exceeds the limit with this name.
func (l Limits) Exceeded(what, name string) *ExceededError {
	values := map[string]string{
		Time:     fmt.Sprintf("%v of processor time", l.Time),
		Memory:   formatMiB(l.Memory),
		Output:   formatMiB(l.Output),
		Inflated: formatMiB(l.Inflated),
	}
	return &ExceededError{What: what, Limit: name, Value: values[name]}
}

func formatMiB(size int64) string {
	const mib = 1 << 20
	if size < mib {
		return fmt.Sprintf("%d bytes", size)
	}
	return fmt.Sprintf("%d MiB", size/mib)
}
