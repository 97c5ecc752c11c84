package main

import (
	"slices"
	"strings"
	"testing"
)

var finishSweep = sweep{
	verb: "finish", argv: []string{"git-agency", "worktree", "finish", "wt"}, listArgs: []string{"worktree", "ls", "--all", "--json"},
	prepare: func(l *lab) {
		l.runShell(l.worktreePath(), "git clean -qfd; git checkout -q .; echo work >work; git add work; git commit -qm work")
	},
}

// TestFinishFaultAtAnyStep makes 'worktree finish' fail, or kills it, at each step. Before the parent branch has moved
// everything is undone; after that, the same command again archives the worktree.
func TestFinishFaultAtAnyStep(t *testing.T) {
	t.Parallel()
	l := finishSweep.newLab(t)
	points := l.faultPoints(finishSweep)
	for _, want := range faultPoints("finish", "objects", "note", "lock", "prepare", "files", "commit", "index", "clear", "done") {
		if !slices.Contains(points, want) {
			t.Fatalf("the fault points %q lack %s", points, want)
		}
	}
	restore := l.save()
	before := withoutObjects(l.dump())
	chosen, committed := chooseActions(points), false
	for _, point := range points {
		committed = committed || point == "finish/commit:after"
		for _, action := range []string{"fail", "kill"} {
			// It is always killed before and after the update of the branch.
			if !chosen(point, action) && (action == "fail" || !strings.HasPrefix(point, "finish/commit:")) {
				continue
			}
			where := point + "=" + action
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+where), finishSweep.argv...)
			if action == "fail" && !committed {
				if o.code != 1 || o.stdout != "" {
					t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
				}
				if d := dumpDiff(before, withoutObjects(l.dump())); d != "" {
					t.Fatalf("%s: files changed:\n%s", where, d)
				}
				continue
			}
			if again := l.try(sweepEnv, finishSweep.argv...); again.code != 0 && !strings.Contains(again.stderr, "no such worktree") && !strings.Contains(again.stderr, "archived") {
				t.Errorf("%s, then again: ended with %d\n%s%s", where, again.code, again.stdout, again.stderr)
			}
			if got := l.git("show", "main:work"); got != "work" {
				t.Errorf("%s: main has %q", where, got)
			}
			if listed := l.agency("worktree", "ls"); strings.Contains(listed, "wt") {
				t.Errorf("%s: the worktree is still there:\n%s", where, listed)
			}
			l.agency("worktree", "rm", sweepWorktree) // completes an archiving that was interrupted
			l.agency("doctor")
			restore()
		}
	}
}
