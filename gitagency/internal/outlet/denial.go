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
	Time   time.Time
	Kind   string
	Target string // host:port as requested, in printable ASCII
	Reason string
	Allow  string // entries of --outputs that would allow it; empty when none would
	Count  int    // number of refusals so far, including this one
}

const (
	mostTargets  = 1000 // beyond this many, targets are counted together
	otherTargets = "(other targets)"
)

// denialLog reports denials, but not every single one: a program that retries for ever must not fill the disk. Of equal
// denials it reports the first at once, then the tenth, the hundredth and so on, and the last when the proxy ends; the
// count in each says how many there were. Beyond a thousand different ones the rest are counted together.
type ledger struct {
	tell func(Denial) // never called concurrently; may be nil

	mu   sync.Mutex
	seen map[denialKey]*denials
}

type denialKey struct{ kind, target, reason string }

type denials struct {
	last Denial
	told int // count in the last report
	next int // count of the next report
}

func (l *ledger) add(d Denial) {
	if l.tell == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := denialKey{d.Kind, d.Target, d.Reason}
	if l.seen[key] == nil && len(l.seen) >= mostTargets {
		d.Target, d.Reason, d.Allow = otherTargets, "more different targets than are told apart", ""
		key = denialKey{d.Kind, d.Target, d.Reason}
	}
	e := l.seen[key]
	if e == nil {
		e = &denials{next: 1}
		if l.seen == nil {
			l.seen = map[denialKey]*denials{}
		}
		l.seen[key] = e
	}
	d.Count = e.last.Count + 1
	e.last = d
	if d.Count == e.next {
		e.told, e.next = d.Count, e.next*10
		l.tell(d)
	}
}

// reportTotals reports the final counts.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.seen {
		if e.last.Count > e.told {
			e.told = e.last.Count
			l.tell(e.last)
		}
	}
}
