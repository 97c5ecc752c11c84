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

// killStep returns the distance between two kill points of a sweep: the value of -every if that is given, otherwise short
// with -short and long without it.
func killStep(short, long int) int {
	switch {
	case *killEvery > 0:
		return *killEvery
	case testing.Short():
		return short
	}
	return long
}

// TestPruneKilledAtAnyChangeIsFinishedByNext kills a prune before its system calls that change the disk, those of git
// included, and checks that the next prune finishes it.
func TestPruneKilledAtAnyChangeIsFinishedByNext(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.agency("discard", pruneRecent) // keep only one interrupted discard
	want, restore := l.uninterruptedPrune(), l.save()
	for n := 1; ; n += killStep(200, 6) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "prune")
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.fixPackedRefsLock()
		l.checkNextPrune(strconv.Itoa(n)+", before "+last, want)
		restore()
	}
}

func TestPruneKilledAtAnyChangeKeepsLateWork(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	l.startWithID(pruneInterrupted)
	l.discardAtID(pruneInterrupted, "", 0)
	l.write(filepath.Join(l.sandboxPath(pruneInterrupted), "late"), "l\n")
	restore := l.save()
	for n := 1; ; n += killStep(120, 4) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "prune")
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.fixPackedRefsLock()
		l.checkLateWork(strconv.Itoa(n) + ", before " + last)
		restore()
	}
}

// TestPruneDryRunWritesOnlyLock checks that a dry run makes no system call that changes the repository or the data
// directory, except for the lock. Calls by which git refreshes the mtime of existing objects do not count.
func TestPruneDryRunWritesOnlyLock(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.write(filepath.Join(l.sandboxPath(pruneInterrupted), "late"), "l\n")
	log := filepath.Join(t.TempDir(), "log")
	o := l.try(nil, "killat", "-n", "0", "-log", log, "-under", l.repo+","+l.data, "--", filepath.Join(l.bin, "git-agency"), "prune", "--dry-run")
	if o.code == killatFailed {
		t.Skipf("ptrace is not permitted here: %s", o.stderr)
	}
	if o.code != 0 || !strings.Contains(o.stdout, "would clean up invocation "+pruneInterrupted+": its sandbox was changed") {
		t.Fatalf("exited with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	changes := 0
	for line := range strings.Lines(l.read(log)) {
		if strings.HasPrefix(line, "- ") || strings.Contains(line, " utimensat "+filepath.Join(l.repo, ".git", "objects")) {
			continue // a sync, or a refreshed mtime
		}
		changes++
		if !strings.Contains(line, filepath.Join(l.repo, ".git", "agency", "lock")) {
			t.Errorf("a change besides the lock: %s", line)
		}
	}
	if changes == 0 {
		t.Errorf("the log does not even show the lock: %s", l.read(log))
	}
}

// TestPruneKeepsLeftoversWithMounts checks that prune keeps leftover directories of sandboxes and records in which a
// directory is mounted.
func TestPruneKeepsLeftoversWithMounts(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newPruneLab(t)
	cache := filepath.Join(l.dir, "cache")
	l.write(filepath.Join(cache, "precious"), "p\n")
	l.renameInSandboxDir(pruneRecent, "tree", ".done")
	points := map[string]string{
		pruneInterrupted: filepath.Join(l.sandboxPath(pruneInterrupted), "build"),
		pruneRecent:      filepath.Join(filepath.Dir(l.sandboxPath(pruneRecent)), ".done", "build"),
		pruneTemp:        filepath.Join(l.repoData(), "invocations", ".tmp-"+pruneTemp, "build"),
	}
	for _, point := range points {
		if err := os.Mkdir(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(cache, point, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	pruned := l.prune("--expire=now")
	for _, p := range pruned {
		if point := points[p.ID]; point != "" && (p.Action != "keep" || !strings.Contains(p.Reason, "something is mounted at "+point)) {
			t.Errorf("got %+v", p)
		}
	}
	if actionsByID(pruned)[pruneOld] != "remove" {
		t.Error("the other invocations were not pruned")
	}
	for _, point := range points {
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.prune("--expire=now")
	if l.read(filepath.Join(cache, "precious")) != "p\n" {
		t.Error("the file in the mounted directory is gone")
	}
	if all := l.invocations(); len(all) != 1 || all[0].ID != pruneActive {
		t.Errorf("remaining invocations: %+v", all)
	}
}
