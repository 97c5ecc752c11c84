package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rollbackSweep = sweep{
	verb: "rollback", argv: []string{"git-agency", "snapshot", "rollback", sweepID, sweepID + "/1"}, listArgs: []string{"ls", "--all", "--json"},
}

// rollbackLab is a repository with a sandbox that was changed after a snapshot.
type rollbackLab struct {
	*lab
	tree          string
	snapshotState string // sandboxState at the snapshot
	changedState  string // sandboxState after the later changes
	changedTree   string // tree of a snapshot of the later changes
	outsideDump   string // dump without the paths of the sandbox
}

// newRollbackLab changes the sandbox that newLab makes.
func newRollbackLab(t *testing.T, newLab func(t *testing.T) (l *lab, tree string)) *rollbackLab {
	t.Helper()
	l := &rollbackLab{}
	l.lab, l.tree = newLab(t)
	l.agency("exec", sweepID, "--", "git", "commit", "-q", "--allow-empty", "-m", "inside") // creates the upper directory of the overlay
	l.agency("snapshot", "create", sweepID)
	l.snapshotState = l.sandboxState()
	l.inSandbox(sweepID, `
git add -A; git commit -q -m more
echo l >later; echo changed again >readme; git add readme
rm -r sub; echo a file >sub`)
	l.changedState = l.sandboxState()
	restore := l.save()
	l.must(rollbackSweep.argv...)
	if got := l.sandboxState(); got != l.snapshotState {
		t.Fatalf("the state after the rollback is\n%s\nwant\n%s", got, l.snapshotState)
	}
	l.changedTree = l.git("rev-parse", "refs/agency/snapshots/"+sweepID+"/2^{tree}")
	restore()
	l.outsideDump = l.dumpWithoutRollbackPaths()
	return l
}

// save saves the repository like the method it overrides. The restored files have new inode numbers, by which git-agency
// compares the git directories inside and outside the walls, so restore runs a command in the sandbox to
// synchronize them.
func (l *rollbackLab) save() (restore func()) {
	l.t.Helper()
	back := l.lab.save()
	return func() {
		l.t.Helper()
		back()
		l.agency("exec", sweepID, "--", "true")
	}
}

// dumpWithoutObjects lists all files except git objects, of which unreachable ones may be left, and those of withoutWalls.
func (l *rollbackLab) dumpWithoutObjects() string { return withoutWalls(l.dump()) }

// sandboxState returns all that a rollback restores: files, index, HEAD and git status.
func (l *rollbackLab) sandboxState() string {
	l.t.Helper()
	return l.inSandbox(sweepID, `find . -name .agency -prune -o -name .git -prune -o \( -type f -o -type l \) -printf '%p %y %m %l\n' | sort &&
find . -name .agency -prune -o -name .git -prune -o -type f -print | sort | xargs sha1sum && `+gitStateScript)
}

// gitStateScript prints the part of sandboxState that git reads from its directory, which differs inside the walls unless
// both sides are synchronized.
const gitStateScript = `git ls-files -s && git symbolic-ref HEAD && git rev-parse HEAD && git status --porcelain`

// rollbackPaths matches the lines of a dump of snapshot refs, and of scratch directories that a killed rollback leaves for
// doctor and prune.
var rollbackPaths = regexp.MustCompile(`(?m)^"repo/\.git/((logs/)?refs/agency/snapshots/|agency/capture-)` + sweepID + `.*\n`)

func (l *rollbackLab) dumpWithoutRollbackPaths() string {
	return rollbackPaths.ReplaceAllString(l.dumpOutsideSandbox(), "")
}

// nextCommands are commands that may find a rollback in progress. checkNextCommand fills in the arguments of put.
var nextCommands = [][]string{
	{"git-agency", "exec", sweepID, "--", "true"},
	{"git-agency", "doctor", "--fix", sweepID},
	{"git-agency", "snapshot", "create", sweepID},
	{"git-agency", "snapshot", "rollback", sweepID, sweepID + "/1"},
	{"git-agency", "put", sweepID, "-"},
	{"git-agency", "diff", sweepID, "--stat"},
	{"git-agency", "discard", sweepID},
}

// checkNextCommand runs the next command after a failed or killed rollback and checks that the rollback is finished or
// undone, that a snapshot keeps the replaced state, and that no temporary files are left.
func (l *rollbackLab) checkNextCommand(point string, next []string, begun bool) {
	l.t.Helper()
	note := filepath.Join(l.repoData(), "invocations", sweepID, "rollback.json")
	begun = begun || exists(note)
	argv := next
	switch {
	case next[1] == "doctor" && len(l.findings()) == 0:
		argv = []string{"git-agency", "doctor"}
	case next[1] == "put":
		argv = []string{"git-agency", "put", sweepID, filepath.Join(l.repo, "readme"), ".agency-put-nothing"}
	}
	// Commands that only read change nothing.
	if was := exists(note); l.try(nil, "git-agency", "show", sweepID).code != 0 || l.try(nil, "git-agency", "path", sweepID).code != 0 || exists(note) != was {
		l.t.Fatalf("%s: show or path fails or changes rollback.json", point)
	}
	o := l.try(nil, argv...)
	if o.code != 0 {
		l.t.Fatalf("%s: %q exited with %d\n%s", point, argv, o.code, o.stderr)
	}
	if next[1] == "put" {
		l.inSandbox(sweepID, "rm .agency-put-nothing")
	}
	if begun {
		if got := l.git("rev-parse", "refs/agency/snapshots/"+sweepID+"/2^{tree}"); got != l.changedTree {
			l.t.Fatalf("%s: snapshot 2 does not hold the replaced state", point)
		}
	}
	if next[1] == "discard" {
		want := "later"
		if begun {
			want = "sub/untracked"
		}
		if got := l.git("ls-tree", "-r", "--name-only", trashRef); !slices.Contains(strings.Fields(got), want) {
			l.t.Fatalf("%s: the trash holds %s", point, got)
		}
	} else {
		want := l.changedState
		if begun || next[2] == "rollback" {
			want = l.snapshotState
		}
		if got := l.sandboxState(); got != want {
			l.t.Fatalf("%s: after %q the state is\n%s\nwant\n%s", point, argv, got, want)
		}
		if got := l.must("git-agency", "exec", sweepID, "--", "sh", "-c", gitStateScript); !strings.HasSuffix(want, got) {
			l.t.Fatalf("%s: after %q the state inside is\n%s\nwant\n%s", point, argv, got, want)
		}
	}
	if exists(note) {
		l.t.Fatalf("%s: rollback.json is left", point)
	}
	if left := l.must("find", filepath.Join(l.repo, ".git"), "-name", "*.lock", "-o", "-name", "*.agency", "-o", "-name", "capture-*"); left != "" && next[1] != "doctor" {
		// A lock that git left is reported by doctor, unless it blocks the command.
		if o := l.try(nil, "git-agency", "doctor"); !strings.Contains(o.stdout, "stale-lock") && !strings.Contains(o.stdout, "leftover-scratch") {
			l.t.Fatalf("%s: %s is left", point, left)
		}
	} else if left != "" {
		l.t.Fatalf("%s: %s is left", point, left)
	}
	if d := dumpDiff(l.outsideDump, l.dumpWithoutRollbackPaths()); d != "" && next[1] != "discard" {
		l.t.Fatalf("%s: files outside the sandbox changed:\n%s", point, d)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
}

func TestRollbackKilledAtAnyStepIsUndoneOrFinished(t *testing.T) {
	t.Parallel()
	for name, newLab := range map[string]func(t *testing.T) (l *lab, tree string){"worktree": newDiscardLab, "overlay": newOverlayDiscardLab, "clone": newCloneDiscardLab} {
		if testing.Short() && name == "clone" { // the transition is that of a worktree
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testKilledRollback(t, newRollbackLab(t, newLab))
		})
	}
}

func testKilledRollback(t *testing.T, l *rollbackLab) {
	points := l.faultPoints(rollbackSweep)
	var steps []string
	for _, step := range []string{"capture", "ref", "pack", "prepare", "note", "lock", "files", "heads", "underway", "index", "layer", "done"} {
		steps = append(steps, "rollback/"+step+":before", "rollback/"+step+":after")
	}
	if !slices.Equal(points, steps) {
		t.Fatalf("the steps are %q", points)
	}
	restore := l.save()
	restore()
	chosen, begun := chooseActions(points), false
	for i, point := range points {
		begun = begun || point == "rollback/files:before"
		if chosen(point, "fail") {
			l.failRollback(point, nextCommands[i%len(nextCommands)], begun)
			restore()
		}
		if !chosen(point, "kill") {
			continue
		}
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), rollbackSweep.argv...); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		if state := l.listedState(rollbackSweep); state != "whole" {
			t.Fatalf("%s: the state of the invocation is %q", point, state)
		}
		l.checkNextCommand(point+" killed", nextCommands[(i/2)%len(nextCommands)], begun)
		restore()
	}
}

// failRollback makes a rollback fail at a point and runs the next command.
func (l *rollbackLab) failRollback(point string, next []string, begun bool) {
	t := l.t
	t.Helper()
	before := l.dumpWithoutObjects()
	o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), rollbackSweep.argv...)
	if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
		t.Errorf("%s: exited with %d\n%s%s", point, o.code, o.stdout, o.stderr)
	}
	if begun != strings.Contains(o.stderr, "half-way to "+sweepID+"/1") {
		t.Errorf("%s: wrong message: %s", point, o.stderr)
	}
	if d := dumpDiff(before, l.dumpWithoutObjects()); d != "" && !begun {
		t.Fatalf("%s: files changed:\n%s", point, d)
	}
	l.checkNextCommand(point+" failed", next, begun)
}
