package main

import (
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

func TestStartShowsProgressOfCopiesOnTerminal(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	copySweep.prepare(l)
	// start runs on a terminal with a clock that advances at every reading.
	start := func(step time.Duration) string {
		t.Helper()
		master, slave := openRawTerminal(t, 80)
		s := &terminalSession{t: t, master: master, updated: make(chan struct{}, 1), done: make(chan struct{})}
		go s.readOutput()
		tool := newTool(slave, slave, gitagency.Options{Dir: l.repo, Env: l.env})
		var now time.Time
		tool.ProgressClock = func() time.Time { now = now.Add(step); return now }
		code := tool.RunCommandLine(t.Context(), []string{"git-agency", "start", "wt"})
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.done
		if code != 0 {
			t.Errorf("exited with %d", code)
		}
		return s.text()
	}
	line := "\rcopying ignored files: 4 files, 0 MiB"
	if got, want := start(time.Second), line+"\r"+strings.Repeat(" ", len(line)-1)+"\r"; !strings.Contains(got, want) {
		t.Errorf("terminal output: %q", got)
	}
	if got := start(time.Millisecond); strings.Contains(got, "copying") {
		t.Errorf("a quick start shows progress: %q", got)
	}
}
