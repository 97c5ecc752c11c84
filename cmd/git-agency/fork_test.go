package main

import (
	"sync"
	"testing"
)

// TestConcurrentForksOfSnapshot starts several sandboxes from one snapshot at the same time, as for agents that
// compete on the same state.
func TestConcurrentForksOfSnapshot(t *testing.T) {
	t.Parallel()
	const n = 3
	l := forkSweep.newLab(t)
	status := l.git("-C", l.agency("path", forkID), "status", "--porcelain", "--untracked-files=all")
	ids := make([]string, n)
	var forks sync.WaitGroup
	for i := range n {
		forks.Go(func() {
			o := l.try(nil, "git-agency", "start", "--from-snapshot", forkID+"/1", "--lock-timeout", "-1")
			if o.code != 0 {
				t.Errorf("start ended with %d: %s", o.code, o.stderr)
			}
			ids[i] = o.line()
		})
	}
	forks.Wait()
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] || id == "" {
			t.Fatalf("empty or repeated id in %q", ids)
		}
		seen[id] = true
		if got := l.git("-C", l.agency("path", id), "status", "--porcelain", "--untracked-files=all"); got != status {
			t.Errorf("%s: %s\nwant %s", id, got, status)
		}
		// Each sandbox has its own files and snapshots.
		l.write(l.agency("path", id)+"/own", id)
		l.agency("snapshot", "create", id)
		if got := l.git("show", "refs/agency/snapshots/"+id+"/1:own"); got != id {
			t.Errorf("the snapshot of %s has the file of %s", id, got)
		}
	}
	if found := l.findings(); len(found) > 0 {
		t.Errorf("doctor found %+v", found)
	}
}
