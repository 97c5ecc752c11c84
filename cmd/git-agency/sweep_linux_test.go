package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// killed runs a command and kills the whole process tree just before its nth change of the world. It
// reports whether the command ended before that.
func (l *lab) killed(n int, argv ...string) (done bool, last string) {
	l.t.Helper()
	return l.killedIn(sweepEnv, n, argv...)
}

// killedIn is killed in another environment than that of a repeatable run.
func (l *lab) killedIn(env []string, n int, argv ...string) (done bool, last string) {
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
	l.t.Fatalf("kill point %d: ended with %d\n%s%s", n, o.code, o.stdout, o.stderr)
	return false, ""
}

// The power goes at every single change of the disk, also inside git.
func TestACreationKilledAtAnyChangeOfTheDiskIsGoneOrWholeOrNamedAndCanBeRemoved(t *testing.T) {
	t.Parallel()
	for _, s := range creations {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before := l.world()
			restore := l.save()
			seen := map[string]int{}
			step := killStep(20, 1)
			for n := 1; ; n += step {
				done, last := l.killed(n, s.argv...)
				if done {
					t.Logf("%d kill points: %v", n-1, seen)
					break
				}
				seen[l.state(s)]++
				l.checkMended(s, strconv.Itoa(n)+", before "+last, before)
				restore()
			}
			if step == 1 && (seen["incomplete"]+seen["missing-meta"] == 0 || seen["whole"] == 0) {
				t.Errorf("the sweep missed the states it is for: %v", seen)
			}
		})
	}
}

func TestTheFirstCreationKilledAtAnyChangeOfTheDiskDoesNotHinderTheNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before, restore := l.world(), l.save()
	for n := 1; ; n += killStep(40, 4) {
		done, last := l.killed(n, first.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.state(first); state == "incomplete" || state == "missing-meta" {
			l.cure(point)
			if d := diff(before, l.world()); d != "" {
				t.Fatalf("%s (%q): traces are left:\n%s", point, state, d)
			}
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
	status := l.git("-C", tree, "status", "--porcelain")
	restore := l.save()
	outside := l.worldOutside()
	for n := 1; ; n += killStep(40, 4) {
		done, last := l.killed(n, discardSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.state(discardSweep); state != "whole" {
			t.Fatalf("%s: the invocation is %q", point, state)
		}
		if found := l.findings(); len(found) > 0 {
			if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
				t.Fatalf("%s: --fix ended with %d for %+v\n%s", point, o.code, found, o.stderr)
			}
			if left := l.findings(); len(left) > 0 {
				t.Fatalf("%s: after --fix there is still %+v", point, left)
			}
		}
		// Done, or never happened: then the sandbox is as it was.
		if l.agency("ls", "--json") != "[]" {
			if l.git("-C", tree, "status", "--porcelain") != status || l.git("for-each-ref", trash) != "" {
				t.Fatalf("%s: the discard was neither finished nor undone", point)
			}
		}
		l.checkDiscarded(point, tree, outside)
		restore()
	}
}

func TestASnapshotKilledAtAnyChangeOfTheDiskIsNoneOrWholeAndDoesNotHinderTheNext(t *testing.T) {
	t.Parallel()
	l, _ := newDiscardLab(t)
	before, restore := withoutObjects(l.world()), l.save()
	for n := 1; ; n += killStep(40, 4) {
		done, last := l.killed(n, snapshotSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		l.checkSnapshot(strconv.Itoa(n)+", before "+last, before, n%2 == 0)
		restore()
	}
}

// What a record promises must be on the disk before the record is, and the record before its id is
// printed. A power cut is not a kill: only what was synced survives it.
func TestNothingIsRecordedBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	l, tree := newDiscardLab(t)
	admin, home := filepath.Join(l.repo, ".git", "worktrees", sweepID), filepath.Join(l.repoData(), "invocations", sweepID)
	heads, kept := filepath.Join(l.repo, ".git/refs/heads/agency"), filepath.Join(l.repo, ".git/refs/agency/trash")
	for _, c := range []struct {
		argv   []string
		before []string // synced before the record takes its name; "*" ends a prefix
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
			t.Fatalf("%q ended with %d: %s", c.argv, o.code, o.stderr)
		}
		lines := strings.Split(l.read(log), "\n")
		commit := slices.IndexFunc(lines, func(s string) bool { return strings.HasSuffix(s, filepath.Join(home, "meta.json")) })
		if commit < 0 {
			t.Fatalf("%q: no record was written:\n%s", c.argv, l.read(log))
		}
		synced := func(lines []string, path string) bool {
			prefix, any := strings.CutSuffix(path, "*")
			return slices.ContainsFunc(lines, func(s string) bool {
				return strings.HasPrefix(s, "- f") && (strings.HasSuffix(s, " "+path) || any && strings.Contains(s, " "+prefix))
			})
		}
		for _, path := range c.before {
			if !synced(lines[:commit], path) {
				t.Errorf("%q: %s was not synced before the record", c.argv, path)
			}
		}
		if !synced(lines[commit:], home) {
			t.Errorf("%q: the name of the record was never synced", c.argv)
		}
		// The same id again, for the creation.
		for _, dir := range []string{home, filepath.Dir(tree)} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestARollbackKilledAtAnyChangeOfTheDiskIsUndoneOrFinishedByTheNextCommand(t *testing.T) {
	t.Parallel()
	l := newRollbackLab(t)
	restore := l.save()
	restore()
	for n, i := 1, 0; ; n, i = n+killStep(40, 4), i+1 {
		done, last := l.killed(n, rollbackSweep.argv...)
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
		point := strconv.Itoa(n) + ", before " + last
		if state := l.state(rollbackSweep); state != "whole" {
			t.Fatalf("%s: the invocation is %q", point, state)
		}
		done = strings.Contains(l.read(filepath.Join(l.repoData(), "invocations", sweepID, "events.jsonl")), `"event":"rollback"`)
		l.checkRolledBack(point, nextCommands[i%len(nextCommands)], done || l.standing() == l.before)
		restore()
	}
}
