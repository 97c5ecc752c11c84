package gitagency

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Promise: "git gc --prune=now" running all the time removes no object that a landing needs.
func TestLandDuringGCLosesNoObjects(t *testing.T) {
	t.Parallel()
	const landings = 10
	l := newTestRepo(t, Options{})
	lines := strings.Repeat("line\n", 4)
	all, last := "", ""
	for i := range landings {
		all += fmt.Sprint("begin ", i, "\n", lines, "end ", i, "\n")
	}
	land := func(strategy string) {
		t.Helper()
		landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, Strategy: strategy, CommitAll: true, Message: "work"})
		if err != nil {
			t.Errorf("%s: %v", strategy, err)
		}
		last = landed.Commit
	}
	l.writeFile("all", all)
	land("merge")
	var boxes []*Sandbox
	for i := range landings {
		l.startWithoutWalls()
		l.writeFile("all", strings.Replace(all, fmt.Sprint("end ", i, "\n"), fmt.Sprint("END ", i, "\n"), 1)) // needs a content merge
		if i%2 == 0 {
			l.git("add", "-A")
			l.git("commit", "-q", "-m", "work")
		}
		boxes = append(boxes, l.sandbox)
	}
	ctx, stop := context.WithCancel(t.Context())
	tidied := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			cmd := exec.Command("git", "gc", "-q", "--prune=now")
			cmd.Dir, cmd.Env = l.repo.CommonDir, l.repo.opts.Env
			_ = cmd.Run() // it may fail, because refs appear and disappear while it runs
		}
		tidied <- n
	}()
	for i, box := range boxes {
		l.sandbox = box
		land(Strategies()[i%len(Strategies())])
	}
	stop()
	t.Logf("ran gc %d times", <-tidied)
	l.startWithoutWalls()
	l.git("fsck", "--strict", "--no-dangling")
	if got := l.git("show", last+":all"); strings.Count(got, "END") != landings {
		t.Errorf("the landed file is %s", got)
	}
}
