package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// newHostileRestoreLab makes a discarded sandbox whose command has configured programs in the repositories of two submodules,
// one of which needs no other repository, and in a nested repository that is committed. It returns the command that
// restores the sandbox, and the file that the programs create.
func newHostileRestoreLab(t *testing.T) (l *lab, s sweep, ran string) {
	t.Helper()
	l = newSweepLab(t)
	ran = filepath.Join(l.dir, "ran")
	library := filepath.Join(l.dir, "home", "library")
	l.git("init", "-q", "-b", "main", library)
	l.write(filepath.Join(library, "file"), "f\n")
	l.git("-C", library, "add", ".")
	l.git("-C", library, "commit", "-q", "-m", "library")
	for _, name := range []string{"lib", "full", "unchanged"} {
		l.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, name)
	}
	l.git("commit", "-q", "-m", "submodules")
	l.git("-C", l.worktreePath(), "merge", "-q", l.git("rev-parse", "HEAD"))
	l.agency("start", "wt")
	l.agency("exec", "@", "--", "sh", "-ec", `
git init -q nest
for r in lib full nest; do
	cd $r
	echo n >n
	git add n
	git commit -q -m n
	git config core.fsmonitor 'touch `+ran+`; false'
	git config filter.x.clean 'touch `+ran+`; cat'
	echo 'n filter=x' >.gitattributes
	echo d >n
	cd ..
done
cd full
G=$(git rev-parse --absolute-git-dir)
git -c core.fsmonitor=false repack -q -a -d
rm "$G/objects/info/alternates"
touch "$G/index.lock"
cd ..
git -c core.fsmonitor=false add nest 2>/dev/null
git -c core.fsmonitor=false commit -q -m nest`)
	id := l.agency("ls", "--format", "%(invocation_id)")
	l.agency("discard", id)
	return l, sweep{verb: "restore", argv: []string{"git-agency", "restore", id}, listArgs: []string{"ls", "--all", "--json"}}, ran
}

// checkNothingOfAgentRuns runs git in the tree of a restore that was killed, then the commands that report and undo it, and
// checks that none of them runs a program of the agent.
func (l *lab) checkNothingOfAgentRuns(point, ran string) {
	l.t.Helper()
	tree := filepath.Join(l.repoData(), "sandboxes", sweepID, "tree")
	check := func(what string) {
		l.t.Helper()
		if exists(ran) {
			l.t.Fatalf("%s: %s runs a program of the agent", point, what)
		}
	}
	for _, in := range []string{"", "lib", "full", "unchanged"} {
		if dir := filepath.Join(tree, in); exists(dir) {
			l.try(nil, "git", "-C", dir, "status") // fails in a submodule whose repository is behind the walls
			check("git status in tree/" + in)
		}
	}
	l.agency("ls", "--all")
	check("ls")
	l.findings()
	check("doctor")
	l.fixAll(point)
	check("doctor --fix")
}

// A restore that is killed at any step leaves no repository that an agent has configured where git on the host uses it.
func TestRestoreKilledAtAnyStepRunsNothingOfAgent(t *testing.T) {
	t.Parallel()
	l, s, ran := newHostileRestoreLab(t)
	points, restore := l.faultPoints(s), l.save()
	if testing.Short() {
		// Before this step, nothing of the archive is unpacked.
		points = sampleBoundaries(points[slices.Index(points, "restore/fill:before"):])
	}
	for _, point := range points {
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		l.checkNothingOfAgentRuns(point, ran)
		restore()
	}
}

// The same holds before each of its system calls that change the disk, and the complete sandbox has everything.
func TestRestoreKilledAtAnyChangeRunsNothingOfAgent(t *testing.T) {
	t.Parallel()
	l, s, ran := newHostileRestoreLab(t)
	restore := l.save()
	for n := 1; ; n += killStep(250, 4) {
		done, last := l.runKilled(n, s.argv...)
		l.checkNothingOfAgentRuns(strconv.Itoa(n)+", before "+last, ran)
		if done {
			t.Logf("%d kill points", n-1)
			break
		}
		restore()
	}
	const want = "d\nd\nd\nf\n M full\n M lib\n m nest"
	got := l.agency("exec", sweepID, "--", "sh", "-ec", `cat lib/n full/n nest/n unchanged/file
for r in lib full nest; do git -C $r config core.fsmonitor ""; git -C $r rev-parse -q --verify HEAD >/dev/null; done
git status --short`)
	if got != want {
		t.Errorf("the restored sandbox has\n%s\nwant\n%s", got, want)
	}
}
