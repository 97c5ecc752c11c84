package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The power goes at every single change of the disk, also inside git.
func TestAPruneKilledAtAnyChangeOfTheDiskIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.agency("discard", pruneYoung) // one that was interrupted is enough
	want, restore := l.undisturbed(), l.save()
	for n := 1; ; n++ {
		done, last := l.killedIn(nil, n, "git-agency", "prune")
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.sweepPackedRefsLock()
		l.checkPruned(strconv.Itoa(n)+", before "+last, want)
		restore()
	}
}

func TestLateWorkSurvivesAPruneThatIsKilledAtAnyChangeOfTheDisk(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	l.startAs(pruneHalf)
	l.discardAs(pruneHalf, "", 0)
	l.write(filepath.Join(l.sandboxOf(pruneHalf), "late"), "l\n")
	restore := l.save()
	for n := 1; ; n++ {
		done, last := l.killedIn(nil, n, "git-agency", "prune")
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.sweepPackedRefsLock()
		l.checkLate(strconv.Itoa(n) + ", before " + last)
		restore()
	}
}

// Not even what is gone again afterwards: in the repository and the data directory a dry run takes the
// lock and does nothing else. That git dates objects it meets again is not a change.
func TestADryRunChangesNothingButTheLock(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.write(filepath.Join(l.sandboxOf(pruneHalf), "late"), "l\n")
	log := filepath.Join(t.TempDir(), "log")
	o := l.try(nil, "killat", "-n", "0", "-log", log, "-under", l.repo+","+l.data, "--", filepath.Join(l.bin, "git-agency"), "prune", "--dry-run")
	if o.code == killatFailed {
		t.Skipf("ptrace is not permitted here: %s", o.stderr)
	}
	if o.code != 0 || !strings.Contains(o.stdout, "would clean up invocation "+pruneHalf+": it was worked in") {
		t.Fatalf("ended with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	changes := 0
	for line := range strings.Lines(l.read(log)) {
		if strings.HasPrefix(line, "- ") || strings.Contains(line, " utimensat "+filepath.Join(l.repo, ".git", "objects")) {
			continue // a sync, or a date
		}
		changes++
		if !strings.Contains(line, filepath.Join(l.repo, ".git", "agency", "lock")) {
			t.Errorf("a change: %s", line)
		}
	}
	if changes == 0 {
		t.Errorf("not even the lock shows: %s", l.read(log))
	}
}
