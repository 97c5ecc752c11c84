package outlet

import (
	"sync"
	"time"
)

// The kinds of denials.
const (
	KindHTTP    = "http"
	KindConnect = "connect"
	KindSOCKS   = "socks"
)

// Denial is something that was refused.
type Denial struct {
	Time   time.Time
	Kind   string
	Target string // host:port, printable whatever was asked for
	Reason string
	Allow  string // the entry of the outputs that would allow it; empty when none would
	Count  int    // how often it was refused by now, this time included
}

const (
	mostTargets  = 1000 // that are told apart
	otherTargets = "(other targets)"
)

// ledger tells of denials, but not of each: a program that tries again for ever must not fill a disk. Of equal ones
// the first is told at once, then the tenth, the hundredth and so on, and when the proxy ends the last; each tells by
// its count how many there were. Beyond a thousand different ones the rest are counted together.
type ledger struct {
	tell func(Denial) // never called twice at once; may be nil

	mu   sync.Mutex
	seen map[denialKey]*denials
}

type denialKey struct{ kind, target, reason string }

type denials struct {
	last Denial
	told int // the count that was last told
	next int // the count to tell next
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

// close tells how many there were in the end.
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
