package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// killPoints runs a landing undisturbed and returns the numbers of the changes to the disk before which to kill it:
// those around the update of the branch, those that rename the tree of the sandbox to .done, and every killStep-th of the others.
func (l *landLab) killPoints(offset int, argv []string) []int {
	l.t.Helper()
	log := filepath.Join(l.t.TempDir(), "log")
	o := l.try(sweepEnv, append([]string{
		"killat", "-n", "0", "-log", log, "-under", l.repo + "," + l.data, "--", filepath.Join(l.bin, argv[0]),
	}, argv[1:]...)...)
	if o.code == killatFailed {
		l.t.Skipf("ptrace is not permitted here: %s", o.stderr)
	}
	if o.code != 0 {
		l.t.Fatalf("%q ended with %d\n%s", argv, o.code, o.stderr)
	}
	branch := filepath.Join(l.repo, ".git", l.git("-C", l.tree, "symbolic-ref", "HEAD"))
	all, commit := 0, 0
	removals := map[int]bool{} // renames of the tree of the sandbox and its parts
	for line := range strings.Lines(l.read(log)) {
		number, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(number); err == nil {
			all = n
		}
		if strings.HasPrefix(what, "rename") && strings.HasSuffix(what, branch) {
			commit = all
		}
		if strings.HasPrefix(what, "rename") && strings.Contains(what, "/.done") {
			removals[all] = true
		}
	}
	if commit == 0 {
		l.t.Fatalf("the branch was not updated:\n%s", l.read(log))
	}
	l.t.Logf("%d kill points, the branch is updated at %d", all, commit)
	var points []int
	step, around := killStep(250, 8), killStep(2, 5)
	for n := 1; n <= all; n++ {
		if n%step == offset%step || n >= commit-1 && n <= commit+around || removals[n] {
			points = append(points, n)
		}
	}
	return points
}

// recoveryCommands take the repository lock, and so complete or undo an interrupted landing.
var recoveryCommands = [][]string{
	{"git-agency", "start", "wt"},
	{"git-agency", "prune", "--expire=never"},
	{"git-agency", "doctor", "--fix", sweepID},
}

// checkRecovered runs a recovery command after a killed land or unland and checks that it was either completed or
// undone. It reports whether the user's changes were committed in between.
func (l *landLab) checkRecovered(point string, n int, argv []string, from, to map[string]string, head, landed string) (own bool) {
	l.t.Helper()
	l.checkUncommitted(point)
	if n%3 == 0 {
		own = l.commitAsUser(point)
	}
	next := recoveryCommands[n/3%len(recoveryCommands)]
	if next[1] == "doctor" && len(l.findings()) == 0 {
		next = next[:2]
	}
	if n%4 == 3 {
		next = argv
	}
	if o := l.try(nil, next...); o.code != 0 {
		l.t.Fatalf("%s: %q ended with %d\n%s", point, next, o.code, o.stderr)
	}
	l.checkUncommitted(point)
	if len(diffTrees(from, l.readTree(l.tree))) > 0 {
		from, head = to, landed
	}
	l.checkTree(point, from, head, own)
	return own
}

// TestLandKilledAtAnyChange kills land before changes to the disk. The user's files must be intact, the next command
// completes or undoes the landing, and a repeated land must land exactly once.
func TestLandKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	for at, name := range thin([]string{"merge", "squash", "overlay merge", "clone merge", "rebase"}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []string
			strategy, overlaid := strings.CutPrefix(name, "overlay ")
			if overlaid {
				options = overlayArgs()[1:]
			}
			strategy, cloned := strings.CutPrefix(strategy, "clone ")
			if cloned {
				options = cloneArgs("os")[1:]
			}
			l := newLandLab(t, options...)
			restore, argv := l.save(), landArgs(strategy)
			restore() // restored files have new inodes, as in each later run, so git's stat cache behaves the same
			points := l.killPoints(at*5+1, argv)
			l.checkLanded("undisturbed", strategy, false)
			l.killAtEach(points, restore, argv, func(l *landLab, point string, n int) {
				own := l.checkRecovered(point, n, argv, l.before, l.after, l.treeBefore, l.treeAfter)
				if o := l.try(nil, argv...); o.code != 0 {
					l.t.Fatalf("%s: the repeated land ended with %d\n%s", point, o.code, o.stderr)
				}
				l.checkLanded(point, strategy, own)
			})
		})
	}
}

func TestUnlandKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	if o := l.try(sweepEnv, landSweep.argv...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	restore, argv := l.save(), unlandSweep.argv
	restore()
	points := l.killPoints(16, argv)
	l.checkUnlanded("undisturbed", false)
	l.killAtEach(points, restore, argv, func(l *landLab, point string, n int) {
		own := l.checkRecovered(point, n, argv, l.after, l.before, l.treeAfter, l.treeBefore)
		if o := l.try(nil, argv...); o.code != 0 {
			l.t.Fatalf("%s: the repeated unland ended with %d\n%s", point, o.code, o.stderr)
		}
		l.checkUnlanded(point, own)
	})
}

// killAtEach restores the lab for each point, kills the command there in a subtest, and calls check.
func (l *landLab) killAtEach(points []int, restore func(), argv []string, check func(l *landLab, point string, n int)) {
	for _, n := range points {
		restore()
		l.t.Run(strconv.Itoa(n), func(t *testing.T) {
			l := l.inSubtest(t)
			if done, last := l.runKilled(n, argv...); !done {
				check(l, "before "+last, n)
			}
		})
	}
}
