package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// newCheckoutLab makes a repository with a snapshot of a sandbox and returns the command that checks it out.
func newCheckoutLab(t *testing.T) (*lab, sweep) {
	t.Helper()
	l, _ := newDiscardLab(t)
	l.agency("snapshot", "create", sweepID)
	mkdirAll(t, filepath.Join(l.dir, "home", "copies"))
	return l, sweep{verb: "snapshot checkout", argv: []string{"git-agency", "snapshot", "checkout", sweepID + "/1", filepath.Join(l.dir, "home", "copies", "copy")}}
}

func TestSnapshotCheckoutInterruptedAtAnyStepIsUndone(t *testing.T) {
	t.Parallel()
	l, s := newCheckoutLab(t)
	points := l.faultPoints(s)
	if want := []string{"directory", "files", "inspect", "name"}; len(points) != 2*len(want) {
		t.Fatalf("the steps are %q", points)
	}
	before := l.dump()
	for _, point := range points {
		for action, code := range map[string]int{"fail": 1, "int": 130, "term": 143} {
			if strings.Contains(point, "/name:") && action != "fail" {
				continue // the last step, a rename, is not interrupted
			}
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action), s.argv...)
			if o.code != code || o.stdout != "" || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s: %s exited with %d\n%s%s", point, action, o.code, o.stdout, o.stderr)
			}
			if d := dumpDiff(before, l.dump()); d != "" {
				t.Fatalf("%s: files changed:\n%s", point, d)
			}
		}
	}
}

func TestSnapshotCheckoutKilledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l, s := newCheckoutLab(t)
	points := l.faultPoints(s)
	before, restore := l.dump(), l.save()
	temporary := regexp.MustCompile(`(?m)^\+ "home/copies/\.agency-checkout-.*\n`)
	for _, point := range points {
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		left := temporary.ReplaceAllString(dumpDiff(before, l.dump()), "")
		if exists(s.argv[4]) {
			for line := range strings.Lines(left) {
				if !strings.HasPrefix(line, `+ "home/copies/copy`) {
					t.Errorf("%s: another file changed: %s", point, line)
				}
			}
			if got := l.read(filepath.Join(s.argv[4], "sub", "untracked")); got == "" {
				t.Errorf("%s: the checkout exists, but is incomplete", point)
			}
		} else if left != "" {
			t.Errorf("%s: files are left:\n%s", point, left)
		}
		restore()
	}
}
