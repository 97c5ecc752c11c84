package core

import (
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// A record that says "running" is believed only as long as the process exists that wrote it: not after kill -9, and not
// after a restart of the machine, when another process may have its id.
func TestStatusOfRunsIsReconciled(t *testing.T) {
	t.Parallel()
	me, identity := os.Getpid(), procfs.Identity(os.Getpid())
	for name, c := range map[string]struct {
		m    store.InvocationMeta
		want string
	}{
		"alive":             {running(me, identity), "running"},
		"gone":              {running(1<<22+1, identity), "failed"},
		"reused id":         {running(me, identity+"1"), "failed"},
		"without a process": {running(0, ""), "failed"},
		"without identity":  {running(me, ""), "failed"},
		"gone while asking": {asking(1<<22+1, identity), "blocked"},
		"alive and asking":  {asking(me, identity), "running"},
		"ended":             {store.InvocationMeta{Status: store.StatusBlocked}, "blocked"},
		"never run":         {store.InvocationMeta{Status: store.StatusStarting}, "starting"},
	} {
		run, status := newRun(&store.Entry[store.InvocationMeta]{Record: c.m})
		if status != c.want || (run.StatusReason == killedReason) != (run.PID == 0 && c.m.Status == store.StatusRunning) || (run.PID != 0) != (c.want == "running") || (run.Question != "") != (c.m.Question != nil) {
			t.Errorf("%s: got %s, %q, pid %d; want %s", name, status, run.StatusReason, run.PID, c.want)
		}
	}
}

func running(pid int, started string) store.InvocationMeta {
	return store.InvocationMeta{Status: store.StatusRunning, RunFields: store.RunFields{PID: pid, PIDStarted: started}}
}

func asking(pid int, started string) store.InvocationMeta {
	m := running(pid, started)
	m.Question = &store.Question{Text: "which?", ReplyTo: "0123456789abcdef"}
	return m
}
