package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

func TestALongVerifySaysHowFarItIsOnATerminal(t *testing.T) {
	t.Parallel()
	l, _ := newCheckoutLab(t)
	for n := range 250 {
		l.write(filepath.Join(l.agency("path", sweepID), fmt.Sprint("many/", n)), fmt.Sprint(n))
	}
	l.agency("snapshot", "create", sweepID)
	// It runs on a terminal, where every look at the clock finds that some time has passed.
	verify := func(passes time.Duration) string {
		t.Helper()
		master, slave := openTerminal(t, 80)
		s := &session{t: t, keyboard: master, grew: make(chan struct{}, 1), ended: make(chan struct{})}
		go s.watch()
		tool := newTool(slave, slave, gitagency.Options{Dir: l.repo, Env: l.env})
		var now time.Time
		tool.progressClock = func() time.Time { now = now.Add(passes); return now }
		code := tool.runCommandLine(t.Context(), []string{"git-agency", "snapshot", "verify", sweepID + "/2"})
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		if code != 0 {
			t.Errorf("ended with %d", code)
		}
		return s.seen()
	}
	got := verify(time.Second)
	if wiped := "\r" + strings.Repeat(" ", len("verify: 200 objects")) + "\r"; !strings.Contains(got, "\rverify: 100 objects\rverify: 200 objects"+wiped) || !strings.HasSuffix(got, " all sound\n") {
		t.Errorf("shown was %q", got)
	}
	if got := verify(time.Millisecond); strings.Contains(got, "\r") {
		t.Errorf("of one that is quick, shown was %q", got)
	}
}
