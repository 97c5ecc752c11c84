package outlet

import (
	"sync"
	"time"
)

// Kinds of denials.
const (
	KindHTTP    = "http"
	KindConnect = "connect"
	KindSOCKS   = "socks"
)

// Denial is a request that the proxy refused.
type Denial struct {
	Time       time.Time
	Kind       string
	Target     string // host:port as requested, in printable ASCII
	Reason     string
	AllowEntry string // entries of --outputs that would allow it; empty when none would
	Count      int    // number of refusals so far, including this one
}

const (
	maxTargets   = 1000 // beyond this many, targets are counted together
	otherTargets = "(other targets)"
)

// denialLog reports denials, but not every single one: a program that retries for ever must not fill the disk. Of equal
// denials it reports the first at once, then the tenth, the hundredth and so on, and the last when the proxy ends; the
// count in each says how many there were. Beyond a thousand different ones the rest are counted together.
type denialLog struct {
	report func(Denial) // never called concurrently; may be nil

	mu     sync.Mutex
	counts map[denialKey]*denialCount
}

type denialKey struct{ kind, target, reason string }

type denialCount struct {
	last       Denial
	reported   int // count in the last report
	nextReport int // count of the next report
}

func (l *denialLog) record(d Denial) {
	if l.report == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := denialKey{d.Kind, d.Target, d.Reason}
	if l.counts[key] == nil && len(l.counts) >= maxTargets {
		d.Target, d.Reason, d.AllowEntry = otherTargets, "too many different targets to list each of them", ""
		key = denialKey{d.Kind, d.Target, d.Reason}
	}
	e := l.counts[key]
	if e == nil {
		e = &denialCount{nextReport: 1}
		if l.counts == nil {
			l.counts = map[denialKey]*denialCount{}
		}
		l.counts[key] = e
	}
	d.Count = e.last.Count + 1
	e.last = d
	if d.Count == e.nextReport {
		e.reported, e.nextReport = d.Count, e.nextReport*10
		l.report(d)
	}
}

// reportTotals reports the final counts.
func (l *denialLog) reportTotals() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.counts {
		if e.last.Count > e.reported {
			e.reported = e.last.Count
			l.report(e.last)
		}
	}
}
