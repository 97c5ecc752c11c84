package gitagency

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Promise: somebody who tidies up all the time, and spares nothing that is new, takes away nothing of what lands.
func TestNothingOfALandingIsTidiedAway(t *testing.T) {
	t.Parallel()
	const landings = 10
	l := newLab(t, Options{})
	lines := strings.Repeat("line\n", 4)
	all, last := "", ""
	for i := range landings {
		all += fmt.Sprint("begin ", i, "\n", lines, "end ", i, "\n")
	}
	land := func(strategy string) {
		t.Helper()
		landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID, Strategy: strategy, CommitAll: true, Message: "work"})
		if err != nil {
			t.Errorf("%s: %v", strategy, err)
		}
		last = landed.Commit
	}
	l.write("all", all)
	land("merge")
	var boxes []*Sandbox
	for i := range landings {
		l.withoutWalls()
		l.write("all", strings.Replace(all, fmt.Sprint("end ", i, "\n"), fmt.Sprint("END ", i, "\n"), 1)) // which git has to merge
		if i%2 == 0 {
			l.git("add", "-A")
			l.git("commit", "-q", "-m", "work")
		}
		boxes = append(boxes, l.box)
	}
	ctx, stop := context.WithCancel(t.Context())
	tidied := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			cmd := exec.Command("git", "gc", "-q", "--prune=now")
			cmd.Dir, cmd.Env = l.repo.CommonDir, l.repo.opts.Env
			_ = cmd.Run() // refs come and go before its eyes
		}
		tidied <- n
	}()
	for i, box := range boxes {
		l.box = box
		land(Strategies()[i%len(Strategies())])
	}
	stop()
	t.Logf("tidied up %d times", <-tidied)
	l.withoutWalls()
	l.git("fsck", "--strict", "--no-dangling")
	if got := l.git("show", last+":all"); strings.Count(got, "END") != landings {
		t.Errorf("it has %s", got)
	}
}
