package core

import (
	"sync"
	"sync/atomic"
)

// jobRefresh decides when this process asks how a run on another platform is. The copies of a Repository share it; one without
// runs of agents has none.
type jobRefresh struct {
	asked sync.Map     // ids of the invocations that it has asked about
	locks atomic.Int32 // repository locks that it holds
}

// addLocks counts the repository locks that this process holds.
func (a *jobRefresh) addLocks(n int32) {
	if a != nil {
		a.locks.Add(n)
	}
}

// RefreshJobs brings invocations up to date whose runs go on on another platform: each once in a process, before its first use, and
// never with the repository lock held, which an import of a result needs. It reports whether a record may have changed.
func (r *Repository) RefreshJobs(all ...Invocation) bool {
	if r.Opts.Refresh == nil || r.jobs == nil || r.jobs.locks.Load() > 0 {
		return false
	}
	var open []string
	for _, i := range all {
		if !i.HasOpenJob() {
			continue
		}
		if _, asked := r.jobs.asked.LoadOrStore(i.ID, true); !asked {
			open = append(open, i.ID)
		}
	}
	if len(open) > 0 {
		r.Opts.Refresh(r, open)
	}
	return len(open) > 0
}
