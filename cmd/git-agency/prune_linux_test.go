package main

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var killEvery = flag.Int("every", 0, "in kill sweeps, kill at every `N`th change of the disk (0: as the sweep and -short say)")

// killStep is the distance between two kill points of a sweep: the first with -short, the second without it,
// and that of -every if it is given.
func killStep(short, long int) int {
	switch {
	case *killEvery > 0:
		return *killEvery
	case testing.Short():
		return short
	}
	return long
}

// The power goes at any change of the disk, also inside git.
func TestAPruneKilledAtAnyChangeOfTheDiskIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.agency("discard", pruneYoung) // one that was interrupted is enough
	want, restore := l.undisturbed(), l.save()
	for n := 1; ; n += killStep(80, 6) {
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
	for n := 1; ; n += killStep(50, 4) {
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

// A cache is mounted into what is left of a sandbox, and into what a killed process left.
func TestPruneLeavesWhatIsMountedInALeftoverAlone(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if skip := rerun(t, ".", ownMounts(), exe, t.Name()); skip != "" {
			t.Skipf("nothing can be mounted here: %s", skip)
		}
		return
	}
	l := newPruneLab(t)
	cache := filepath.Join(l.dir, "cache")
	l.write(filepath.Join(cache, "precious"), "p\n")
	l.move(pruneYoung, "tree", ".done")
	points := map[string]string{
		pruneHalf:  filepath.Join(l.sandboxOf(pruneHalf), "build"),
		pruneYoung: filepath.Join(filepath.Dir(l.sandboxOf(pruneYoung)), ".done", "build"),
		pruneTemp:  filepath.Join(l.repoData(), "invocations", ".tmp-"+pruneTemp, "build"),
	}
	for _, point := range points {
		if err := os.Mkdir(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(cache, point, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	pruned := l.pruned("--expire=now")
	for _, p := range pruned {
		if point := points[p.ID]; point != "" && (p.Action != "keep" || !strings.Contains(p.Reason, "something is mounted at "+point)) {
			t.Errorf("got %+v", p)
		}
	}
	if outcomes(pruned)[pruneOld] != "remove" {
		t.Error("nothing else was pruned")
	}
	for _, point := range points {
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.pruned("--expire=now")
	if l.read(filepath.Join(cache, "precious")) != "p\n" {
		t.Error("what was mounted is gone")
	}
	if all := l.all(); len(all) != 1 || all[0].ID != pruneActive {
		t.Errorf("left: %+v", all)
	}
}
