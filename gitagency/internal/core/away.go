package core

import (
	"sync"
	"sync/atomic"
)

// awayState decides when this process asks how a run on another platform is. The copies of a Repository share it; one without
// runs of agents has none.
type awayState struct {
	asked sync.Map     // ids of the invocations that it has asked about
	locks atomic.Int32 // repository locks that it holds
}

// addLocks counts the repository locks that this process holds.
func (a *awayState) addLocks(n int32) {
	if a != nil {
		a.locks.Add(n)
	}
}

// RefreshAway brings invocations up to date whose runs go on on another platform: each once in a process, before its first use, and
// never with the repository lock held, which an import of a result needs. It reports whether a record may have changed.
func (r *Repository) RefreshAway(all ...Invocation) bool {
	if r.Opts.Refresh == nil || r.away == nil || r.away.locks.Load() > 0 {
		return false
	}
	var away []string
	for _, i := range all {
		if !i.IsAway() {
			continue
		}
		if _, asked := r.away.asked.LoadOrStore(i.ID, true); !asked {
			away = append(away, i.ID)
		}
	}
	if len(away) > 0 {
		r.Opts.Refresh(r, away)
	}
	return len(away) > 0
}
