package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rollbackSweep = sweep{
	verb: "rollback", argv: []string{"git-agency", "snapshot", "rollback", sweepID, sweepID + "/1"}, list: []string{"ls", "--all", "--json"},
}

// rollbackLab is a sandbox that was snapshotted, and worked in since.
type rollbackLab struct {
	*lab
	tree    string
	before  string // what it was
	after   string // what it is now
	left    string // the tree of a snapshot of that
	outside string
}

func newRollbackLab(t *testing.T) *rollbackLab {
	t.Helper()
	l := &rollbackLab{}
	l.lab, l.tree = newDiscardLab(t)
	l.agency("exec", sweepID, "--", "git", "commit", "-q", "--allow-empty", "-m", "inside") // so that there is a layer
	l.agency("snapshot", "create", sweepID)
	l.before = l.standing()
	l.git("-C", l.tree, "add", "-A")
	l.git("-C", l.tree, "commit", "-q", "-m", "more")
	l.write(filepath.Join(l.tree, "later"), "l\n")
	l.write(filepath.Join(l.tree, "readme"), "changed again\n")
	l.git("-C", l.tree, "add", "readme")
	if err := os.RemoveAll(filepath.Join(l.tree, "sub")); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(l.tree, "sub"), "a file\n")
	l.after = l.standing()
	restore := l.save()
	l.must(rollbackSweep.argv...)
	if got := l.standing(); got != l.before {
		t.Fatalf("it is\n%s\nand was\n%s", got, l.before)
	}
	l.left = l.git("rev-parse", "refs/agency/snapshots/"+sweepID+"/2^{tree}")
	restore()
	l.outside = l.worldWithoutSandbox()
	return l
}

// save is that of the lab. What it puts back are other files to the kernel, by which the two sides of the walls are
// told to be the same; so they are brought together again.
func (l *rollbackLab) save() (restore func()) {
	l.t.Helper()
	back := l.lab.save()
	return func() {
		l.t.Helper()
		back()
		l.agency("exec", sweepID, "--", "true")
	}
}

// seen is everything there is but what nobody can see.
func (l *rollbackLab) seen() string { return withoutObjects(l.world()) }

// standing is everything that a rollback gives back.
func (l *rollbackLab) standing() string {
	l.t.Helper()
	return l.must("sh", "-c", `cd "$0" && find . -name .agency -prune -o -name .git -prune -o \( -type f -o -type l \) -printf '%p %y %m %l\n' | sort &&
find . -name .agency -prune -o -name .git -prune -o -type f -print | sort | xargs sha1sum && `+standingInside, l.tree)
}

// standingInside is the part of it that git behind walls sees otherwise than git outside, unless both are brought together.
const standingInside = `git ls-files -s && git symbolic-ref HEAD && git rev-parse HEAD && git status --porcelain`

// ofRollbacks are the snapshots, and what a killed one leaves for a moment, which doctor and prune find.
var ofRollbacks = regexp.MustCompile(`(?m)^"repo/\.git/((logs/)?refs/agency/snapshots/|agency/capture-)` + sweepID + `.*\n`)

func (l *rollbackLab) worldWithoutSandbox() string {
	return ofRollbacks.ReplaceAllString(l.worldOutside(), "")
}

// nextCommands are what may find a rollback half-way.
var nextCommands = [][]string{
	{"git-agency", "exec", sweepID, "--", "true"},
	{"git-agency", "doctor", "--fix", sweepID},
	{"git-agency", "snapshot", "create", sweepID},
	{"git-agency", "snapshot", "rollback", sweepID, sweepID + "/1"},
	{"git-agency", "put", sweepID, "-"},
	{"git-agency", "diff", sweepID, "--stat"},
	{"git-agency", "discard", sweepID},
}

// checkRolledBack is what must hold after a rollback was killed, or failed, once the next command has come: it is
// finished or never happened, what was there is kept, and nothing is left of it.
func (l *rollbackLab) checkRolledBack(point string, next []string, begun bool) {
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
	// Who only looks changes nothing.
	if was := exists(note); l.try(nil, "git-agency", "show", sweepID).code != 0 || l.try(nil, "git-agency", "path", sweepID).code != 0 || exists(note) != was {
		l.t.Fatalf("%s: it cannot be looked at", point)
	}
	o := l.try(nil, argv...)
	if o.code != 0 {
		l.t.Fatalf("%s: %q ended with %d\n%s", point, argv, o.code, o.stderr)
	}
	if next[1] == "put" {
		if err := os.Remove(filepath.Join(l.tree, ".agency-put-nothing")); err != nil {
			l.t.Fatal(err)
		}
	}
	if begun {
		if got := l.git("rev-parse", "refs/agency/snapshots/"+sweepID+"/2^{tree}"); got != l.left {
			l.t.Fatalf("%s: what was there is not kept", point)
		}
	}
	if next[1] == "discard" {
		want := "later"
		if begun {
			want = "sub/untracked"
		}
		if got := l.git("ls-tree", "-r", "--name-only", trash); !slices.Contains(strings.Fields(got), want) {
			l.t.Fatalf("%s: what is kept is %s", point, got)
		}
	} else {
		want := l.after
		if begun || next[2] == "rollback" {
			want = l.before
		}
		if got := l.standing(); got != want {
			l.t.Fatalf("%s: after %q it is\n%s\nwanted\n%s", point, argv, got, want)
		}
		if got := l.must("git-agency", "exec", sweepID, "--", "sh", "-c", standingInside); !strings.HasSuffix(want, got) {
			l.t.Fatalf("%s: after %q it is, inside,\n%s\nwanted\n%s", point, argv, got, want)
		}
	}
	if exists(note) {
		l.t.Fatalf("%s: the note of it is left", point)
	}
	if left := l.must("find", filepath.Join(l.repo, ".git"), "-name", "*.lock", "-o", "-name", "*.agency", "-o", "-name", "capture-*"); left != "" && next[1] != "doctor" {
		// A lock that git itself left is doctor's to find, unless it is in the way.
		if o := l.try(nil, "git-agency", "doctor"); !strings.Contains(o.stdout, "stale-lock") && !strings.Contains(o.stdout, "leftover-scratch") {
			l.t.Fatalf("%s: %s is left", point, left)
		}
	} else if left != "" {
		l.t.Fatalf("%s: %s is left", point, left)
	}
	if d := diff(l.outside, l.worldWithoutSandbox()); d != "" && next[1] != "discard" {
		l.t.Fatalf("%s: the world outside of the sandbox changed:\n%s", point, d)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
}

func TestARollbackThatFailsOrIsKilledAtAnyStepIsUndoneOrFinishedByTheNextCommand(t *testing.T) {
	t.Parallel()
	l := newRollbackLab(t)
	points := l.points(rollbackSweep)
	var steps []string
	for _, step := range []string{"capture", "ref", "pack", "prepare", "note", "lock", "files", "heads", "underway", "index", "layer", "done"} {
		steps = append(steps, "rollback/"+step+":before", "rollback/"+step+":after")
	}
	if !slices.Equal(points, steps) {
		t.Fatalf("the steps are %q", points)
	}
	restore := l.save()
	restore()
	begun := false
	for i, point := range points {
		begun = begun || point == "rollback/files:before"
		// With -short each point has one of the two: the end of a step is as good as the beginning of the next.
		if !testing.Short() || i%2 == 0 {
			l.failRollback(point, nextCommands[i%len(nextCommands)], begun)
			restore()
		}
		if testing.Short() && i%2 == 0 {
			continue
		}
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), rollbackSweep.argv...); o.code != -1 {
			t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		if state := l.state(rollbackSweep); state != "whole" {
			t.Fatalf("%s: the invocation is %q", point, state)
		}
		l.checkRolledBack(point+" killed", nextCommands[(i/2)%len(nextCommands)], begun)
		restore()
	}
}

// failRollback has a rollback fail at a point, and the next command come.
func (l *rollbackLab) failRollback(point string, next []string, begun bool) {
	t := l.t
	t.Helper()
	before := l.seen()
	o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), rollbackSweep.argv...)
	if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
		t.Errorf("%s: ended with %d\n%s%s", point, o.code, o.stdout, o.stderr)
	}
	if begun != strings.Contains(o.stderr, "half-way to "+sweepID+"/1") {
		t.Errorf("%s: says %s", point, o.stderr)
	}
	if d := diff(before, l.seen()); d != "" && !begun {
		t.Fatalf("%s: the world changed:\n%s", point, d)
	}
	l.checkRolledBack(point+" failed", next, begun)
}
