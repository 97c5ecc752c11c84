package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

func TestSnapshotVerifyShowsProgressOnTerminal(t *testing.T) {
	t.Parallel()
	l, _ := newCheckoutLab(t)
	tree := l.agency("path", sweepID)
	for n := range 250 {
		l.write(filepath.Join(tree, fmt.Sprint("many/", n)), fmt.Sprint(n))
	}
	l.agency("snapshot", "create", sweepID)
	// verify runs on a terminal with a clock that advances at every reading.
	verify := func(step time.Duration) string {
		t.Helper()
		master, slave := openRawTerminal(t, 80)
		s := &terminalSession{t: t, master: master, updated: make(chan struct{}, 1), done: make(chan struct{})}
		go s.readOutput()
		tool := newTool(slave, slave, gitagency.Options{Dir: l.repo, Env: l.env})
		var now time.Time
		tool.ProgressClock = func() time.Time { now = now.Add(step); return now }
		code := tool.RunCommandLine(t.Context(), []string{"git-agency", "snapshot", "verify", sweepID + "/2"})
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.done
		if code != 0 {
			t.Errorf("exited with %d", code)
		}
		return s.text()
	}
	got := verify(time.Second)
	if wiped := "\r" + strings.Repeat(" ", len("verify: 200 objects")) + "\r"; !strings.Contains(got, "\rverify: 100 objects\rverify: 200 objects"+wiped) || !strings.HasSuffix(got, " all sound\n") {
		t.Errorf("terminal output: %q", got)
	}
	if got := verify(time.Millisecond); strings.Contains(got, "\r") {
		t.Errorf("a quick verify shows progress: %q", got)
	}
}
