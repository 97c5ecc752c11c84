package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// runKilled runs a command and kills its whole process tree just before its nth system call that changes the repository or
// the data directory. It returns done if the command ended before that, otherwise the log line of that call.
func (l *lab) runKilled(n int, argv ...string) (done bool, last string) {
	l.t.Helper()
	return l.runKilledWithEnv(sweepEnv, n, argv...)
}

// runKilledWithEnv is runKilled with other variables than those of a repeatable run.
func (l *lab) runKilledWithEnv(env []string, n int, argv ...string) (done bool, last string) {
	l.t.Helper()
	log := filepath.Join(l.t.TempDir(), "log")
	o := l.try(env, append([]string{
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
	l.t.Fatalf("kill point %d: exited with %d\n%s%s", n, o.code, o.stdout, o.stderr)
	return false, ""
}

// TestCreationKilledAtAnyChangeIsRepairable kills a creation before its system calls that change the disk, those of git
// included. The result must be complete, absent, or listed as broken and removable by doctor.
func TestCreationKilledAtAnyChangeIsRepairable(t *testing.T) {
	t.Parallel()
	for _, s := range creations {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before := s.dump(l)
			restore := l.save()
			seen := map[string]int{}
			step := killStep(120, 1)
			if s.verb == restoreSweep.verb { // has the most points
				step = killStep(200, 1)
			}
			for n := 1; ; n += step {
				done, last := l.runKilled(n, s.argv...)
				if done {
					t.Logf("%d kill points: %v", n-1, seen)
					break
				}
				seen[l.checkFixable(s, strconv.Itoa(n)+", before "+last, before)]++
				restore()
			}
			if step == 1 && (seen["incomplete"]+seen["missing-meta"] == 0 || seen["whole"] == 0) {
				t.Errorf("the sweep did not reach all states: %v", seen)
			}
		})
	}
}

func TestFirstCreationKilledAtAnyChangeDoesNotBlockNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before, restore := l.dump(), l.save()
	for n := 1; ; n += killStep(40, 4) {
		done, last := l.runKilled(n, firstCreation.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.listedState(firstCreation); state == "incomplete" || state == "missing-meta" {
			l.fixAll(point)
			if d := dumpDiff(before, l.dump()); d != "" {
				t.Fatalf("%s (%q): files are left:\n%s", point, state, d)
			}
		}
		if state := l.listedState(firstCreation); state == "" {
			l.must(firstCreation.argv...)
		}
		if status := l.git("status", "--porcelain"); status != "" {
			t.Errorf("%s: git status in the main worktree is %s", point, status)
		}
		l.checkRepository()
		for _, dir := range []string{filepath.Join(l.repo, ".git", "info"), l.repoData()} {
			if temps, err := filepath.Glob(filepath.Join(dir, ".tmp-*")); err != nil || len(temps) > 0 {
				t.Errorf("%s: temporary files are left: %v, %v", point, temps, err)
			}
		}
		restore()
	}
}

func TestDiscardKilledAtAnyChangeIsFinishedByNext(t *testing.T) {
	t.Parallel()
	for name, newLab := range discardLabs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testDiscardKilledAtChanges(t, newLab)
		})
	}
}

func testDiscardKilledAtChanges(t *testing.T, newLab func(t *testing.T) (l *lab, tree string)) {
	l, tree := newLab(t)
	archived := l.hasNested()
	status := l.inSandbox(sweepID, "git status --porcelain")
	restore := l.save()
	outside := l.dumpOutsideSandbox()
	for n := 1; ; n += killStep(160, 4) {
		done, last := l.runKilled(n, discardSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.listedState(discardSweep); state != "whole" {
			t.Fatalf("%s: the state of the invocation is %q", point, state)
		}
		if found := l.findings(); len(found) > 0 {
			if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
				t.Fatalf("%s: --fix exited with %d for %+v\n%s", point, o.code, found, o.stderr)
			}
			if left := l.findings(); len(left) > 0 {
				t.Fatalf("%s: findings after --fix: %+v", point, left)
			}
		}
		// The discard is finished, or the sandbox is as it was.
		if l.agency("ls", "--json") != "[]" {
			if l.inSandbox(sweepID, "git status --porcelain") != status || l.git("for-each-ref", trashRef) != "" {
				t.Fatalf("%s: the discard was neither finished nor undone", point)
			}
		}
		l.checkNextDiscard(point, tree, outside)
		if archived {
			l.checkArchived(point)
		}
		restore()
	}
}

func TestSnapshotKilledAtAnyChangeIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l, _ := newDiscardLab(t)
	before, restore := withoutObjects(l.dump()), l.save()
	for n := 1; ; n += killStep(40, 4) {
		done, last := l.runKilled(n, snapshotSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.checkNextSnapshot(strconv.Itoa(n)+", before "+last, before, n%2 == 0)
		restore()
	}
}

// TestRecordIsWrittenAfterFsync checks that the files to which a record refers are synced before the record is renamed into
// place, and that its directory is synced afterwards. A kill cannot test this: a power cut loses all that was not synced.
func TestRecordIsWrittenAfterFsync(t *testing.T) {
	t.Parallel()
	l, tree := newDiscardLab(t)
	admin, home := filepath.Join(l.repo, ".git", "worktrees", sweepID), filepath.Join(l.repoData(), "invocations", sweepID)
	heads, kept := filepath.Join(l.repo, ".git/refs/heads/agency"), filepath.Join(l.repo, ".git/refs/agency/trash")
	for _, c := range []struct {
		argv   []string
		before []string // paths synced before the rename of the record; "*" ends a prefix
	}{
		{discardSweep.argv, []string{filepath.Join(kept, sweepID+".lock"), kept, filepath.Join(home, ".tmp-meta.json-*")}},
		{creations[1].argv, []string{
			filepath.Join(home, ".tmp-intent.json-*"), home,
			filepath.Join(heads, "sandbox-"+sweepID+".lock"), heads,
			filepath.Join(admin, "gitdir"), filepath.Join(admin, "commondir"), filepath.Join(admin, "HEAD"), admin, filepath.Dir(admin),
			filepath.Join(tree, ".git"), tree, filepath.Dir(tree),
			filepath.Join(tree, ".agency", "SANDBOX_MARKER"), filepath.Join(tree, ".agency"),
			filepath.Join(home, ".tmp-meta.json-*"),
		}},
	} {
		log := filepath.Join(t.TempDir(), "log")
		o := l.try(sweepEnv, append([]string{
			"killat", "-n", "0", "-log", log, "-under", l.repo + "," + l.data, "--", filepath.Join(l.bin, c.argv[0]),
		}, c.argv[1:]...)...)
		if o.code == killatFailed {
			t.Skipf("ptrace is not permitted here: %s", o.stderr)
		}
		if o.code != 0 {
			t.Fatalf("%q exited with %d: %s", c.argv, o.code, o.stderr)
		}
		lines := strings.Split(l.read(log), "\n")
		commit := slices.IndexFunc(lines, func(s string) bool { return strings.HasSuffix(s, filepath.Join(home, "meta.json")) })
		if commit < 0 {
			t.Fatalf("%q: no record was written:\n%s", c.argv, l.read(log))
		}
		synced := func(lines []string, path string) bool {
			prefix, isPrefix := strings.CutSuffix(path, "*")
			return slices.ContainsFunc(lines, func(s string) bool {
				return strings.HasPrefix(s, "- f") && (strings.HasSuffix(s, " "+path) || isPrefix && strings.Contains(s, " "+prefix))
			})
		}
		for _, path := range c.before {
			if !synced(lines[:commit], path) {
				t.Errorf("%q: %s was not synced before the record", c.argv, path)
			}
		}
		if !synced(lines[commit:], home) {
			t.Errorf("%q: the directory of the record was not synced after the rename", c.argv)
		}
		// The creation uses the same id.
		for _, dir := range []string{home, filepath.Dir(tree)} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRollbackKilledAtAnyChangeIsUndoneOrFinished(t *testing.T) {
	t.Parallel()
	l := newRollbackLab(t, newDiscardLab)
	restore := l.save()
	restore()
	for n, i := 1, 0; ; n, i = n+killStep(120, 4), i+1 {
		done, last := l.runKilled(n, rollbackSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.listedState(rollbackSweep); state != "whole" {
			t.Fatalf("%s: the state of the invocation is %q", point, state)
		}
		done = strings.Contains(l.read(filepath.Join(l.repoData(), "invocations", sweepID, "events.jsonl")), `"event":"rollback"`)
		l.checkNextCommand(point, nextCommands[i%len(nextCommands)], done || l.sandboxState() == l.snapshotState)
		restore()
	}
}
