package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// killPoints are the changes of the disk before which a landing is killed: those around the moment at which the branch
// moves, and of the others every killStep-th.
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
	for line := range strings.Lines(l.read(log)) {
		number, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(number); err == nil {
			all = n
		}
		if strings.HasPrefix(what, "rename") && strings.HasSuffix(what, branch) {
			commit = all
		}
	}
	if commit == 0 {
		l.t.Fatalf("the branch did not move:\n%s", l.read(log))
	}
	l.t.Logf("%d kill points, the branch moves at %d", all, commit)
	var points []int
	step, around := killStep(100, 8), killStep(3, 5)
	for n := 1; n <= all; n++ {
		if n%step == offset%step || n >= commit-1 && n <= commit+around {
			points = append(points, n)
		}
	}
	return points
}

// nextToLanding are commands that take the repository lock, and so end what was interrupted.
var nextToLanding = [][]string{
	{"git-agency", "start", "wt"},
	{"git-agency", "prune", "--expire=never"},
	{"git-agency", "doctor", "--fix", sweepID},
}

// ended is what must hold after a landing, or what takes one back, was killed and any command has come: it is as if it had
// never been, or done.
func (l *landLab) ended(point string, n int, argv []string, from, to map[string]string, head, landed string) (own bool) {
	l.t.Helper()
	l.checkOwn(point)
	if n%3 == 0 {
		own = l.commit(point)
	}
	next := nextToLanding[n/3%len(nextToLanding)]
	if next[1] == "doctor" && len(l.findings()) == 0 {
		next = next[:2]
	}
	if n%4 == 3 {
		next = argv
	}
	if o := l.try(nil, next...); o.code != 0 {
		l.t.Fatalf("%s: %q ended with %d\n%s", point, next, o.code, o.stderr)
	}
	l.checkOwn(point)
	if len(differences(from, l.files(l.tree))) > 0 {
		from, head = to, landed
	}
	l.is(point, from, head, own)
	return own
}

// The power goes at any change of the disk. The person finds what was theirs, the next command ends what was begun, and
// to land again is to have landed once.
func TestALandingKilledAtAnyChangeOfTheDiskIsDoneOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	for at, strategy := range []string{"merge", "squash", "rebase"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			l := newLandLab(t)
			restore, argv := l.save(), landWith(strategy)
			restore() // what it puts back are other files to the kernel, and so to git, as they are each time
			points := l.killPoints(at*5+1, argv)
			l.checkLanded("undisturbed", strategy, false)
			l.sweep(points, restore, argv, func(l *landLab, point string, n int) {
				own := l.ended(point, n, argv, l.before, l.after, l.head, l.landed)
				if o := l.try(nil, argv...); o.code != 0 {
					l.t.Fatalf("%s: to land again ended with %d\n%s", point, o.code, o.stderr)
				}
				l.checkLanded(point, strategy, own)
			})
		})
	}
}

func TestTakingALandingBackKilledAtAnyChangeOfTheDiskIsDoneOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	if o := l.try(sweepEnv, landSweep.argv...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	restore, argv := l.save(), unlandSweep.argv
	restore()
	points := l.killPoints(16, argv)
	l.checkUnlanded("undisturbed", false)
	l.sweep(points, restore, argv, func(l *landLab, point string, n int) {
		own := l.ended(point, n, argv, l.after, l.before, l.landed, l.head)
		if o := l.try(nil, argv...); o.code != 0 {
			l.t.Fatalf("%s: to take it back again ended with %d\n%s", point, o.code, o.stderr)
		}
		l.checkUnlanded(point, own)
	})
}

// sweep kills at each of these points, and has looked at what comes of it.
func (l *landLab) sweep(points []int, restore func(), argv []string, check func(l *landLab, point string, n int)) {
	for _, n := range points {
		l.t.Run(strconv.Itoa(n), func(t *testing.T) {
			restore()
			l := l.of(t)
			if done, last := l.killed(n, argv...); !done {
				check(l, "before "+last, n)
			}
		})
	}
}
