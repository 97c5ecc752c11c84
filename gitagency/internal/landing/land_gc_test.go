package landing

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// Promise: "git gc --prune=now" running all the time removes no object that a landing needs.
func TestLandDuringGCLosesNoObjects(t *testing.T) {
	t.Parallel()
	const landings = 10
	l := sandboxtest.New(t, core.Options{})
	lines := strings.Repeat("line\n", 4)
	all, last := "", ""
	for i := range landings {
		all += fmt.Sprint("begin ", i, "\n", lines, "end ", i, "\n")
	}
	land := func(strategy string) {
		t.Helper()
		landed, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, Strategy: strategy, CommitAll: true, Message: "work"})
		if err != nil {
			t.Errorf("%s: %v", strategy, err)
		}
		last = landed.Commit
	}
	l.WriteFile("all", all)
	land("merge")
	var boxes []*sandbox.Sandbox
	for i := range landings {
		l.StartWithoutWalls()
		l.WriteFile("all", strings.Replace(all, fmt.Sprint("end ", i, "\n"), fmt.Sprint("END ", i, "\n"), 1)) // needs a content merge
		if i%2 == 0 {
			l.Git("add", "-A")
			l.Git("commit", "-q", "-m", "work")
		}
		boxes = append(boxes, l.Sandbox)
	}
	ctx, stop := context.WithCancel(t.Context())
	tidied := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			cmd := exec.Command("git", "gc", "-q", "--prune=now")
			cmd.Dir, cmd.Env = l.Repo.CommonDir, l.Repo.Opts.Env
			_ = cmd.Run() // it may fail, because refs appear and disappear while it runs
		}
		tidied <- n
	}()
	for i, box := range boxes {
		l.Sandbox = box
		land(settings.Strategies()[i%len(settings.Strategies())])
	}
	stop()
	t.Logf("ran gc %d times", <-tidied)
	l.StartWithoutWalls()
	l.Git("fsck", "--strict", "--no-dangling")
	if got := l.Git("show", last+":all"); strings.Count(got, "END") != landings {
		t.Errorf("the landed file is %s", got)
	}
}
