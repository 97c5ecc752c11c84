package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// killed runs a command and kills the whole process tree just before its nth change of the world. It
// reports whether the command ended before that.
func (l *lab) killed(n int, argv ...string) (done bool, last string) {
	l.t.Helper()
	log := filepath.Join(l.t.TempDir(), "log")
	o := l.try(sweepEnv, append([]string{
		"killat", "-n", strconv.Itoa(n), "-log", log, "-under", l.repo + "," + l.data, "--", filepath.Join(l.bin, argv[0]),
	}, argv[1:]...)...)
	lines := strings.Split(strings.TrimSpace(l.read(log)), "\n")
	switch o.code {
	case 0:
		return true, ""
	case killatKilled:
		return false, lines[len(lines)-1]
	case killatFailed:
		l.t.Skipf("ptrace is not permitted here: %s", o.stderr)
	}
	l.t.Fatalf("kill point %d: ended with %d\n%s%s", n, o.code, o.stdout, o.stderr)
	return false, ""
}

// The power goes at every single change of the disk, also inside git.
func TestACreationKilledAtAnyChangeOfTheDiskIsGoneOrWholeOrNamedAndCanBeRemoved(t *testing.T) {
	t.Parallel()
	for _, s := range creations {
		t.Run(s.verb, func(t *testing.T) {
			t.Parallel()
			l := newSweepLab(t)
			before := l.world()
			restore := l.save()
			seen := map[string]int{}
			for n := 1; ; n++ {
				done, last := l.killed(n, s.argv...)
				if done {
					t.Logf("%d kill points: %v", n-1, seen)
					break
				}
				seen[l.state(s)]++
				l.checkInterrupted(s, strconv.Itoa(n)+", before "+last, before)
				restore()
			}
			if seen["incomplete"]+seen["missing-meta"] == 0 || seen["whole"] == 0 {
				t.Errorf("the sweep missed the states it is for: %v", seen)
			}
		})
	}
}

func TestTheFirstCreationKilledAtAnyChangeOfTheDiskDoesNotHinderTheNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	restore := l.save()
	for n := 1; ; n++ {
		done, last := l.killed(n, first.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.state(first); state == "incomplete" || state == "missing-meta" {
			l.must(append([]string{"git-agency"}, first.clean...)...)
		}
		if state := l.state(first); state == "" {
			l.must(first.argv...)
		}
		if status := l.git("status", "--porcelain"); status != "" {
			t.Errorf("%s: the main worktree shows %s", point, status)
		}
		l.checkRepository()
		for _, dir := range []string{filepath.Join(l.repo, ".git", "info"), l.repoData()} {
			if temps, err := filepath.Glob(filepath.Join(dir, ".tmp-*")); err != nil || len(temps) > 0 {
				t.Errorf("%s: left behind: %v, %v", point, temps, err)
			}
		}
		restore()
	}
}

func TestADiscardKilledAtAnyChangeOfTheDiskLosesNothingAndIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l, tree := newDiscardLab(t)
	restore := l.save()
	outside := l.worldOutside()
	for n := 1; ; n++ {
		done, last := l.killed(n, discardSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.state(discardSweep); state != "whole" {
			t.Fatalf("%s: the invocation is %q", point, state)
		}
		l.sweepPackedRefsLock()
		l.checkDiscarded(point, tree, outside)
		restore()
	}
}

// sweepPackedRefsLock removes a lock that a killed git left on all refs at once. It could be anybody's,
// so no command of ours takes it away; git says what to do.
func (l *lab) sweepPackedRefsLock() {
	l.t.Helper()
	if err := os.Remove(filepath.Join(l.repo, ".git", "packed-refs.lock")); err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
}
