package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// newCheckoutLab is a lab with a sandbox that there is a snapshot of.
func newCheckoutLab(t *testing.T) (*lab, sweep) {
	t.Helper()
	l, _ := newDiscardLab(t)
	l.agency("snapshot", "create", sweepID)
	mkdir(t, filepath.Join(l.dir, "home", "copies"))
	return l, sweep{verb: "snapshot checkout", argv: []string{"git-agency", "snapshot", "checkout", sweepID + "/1", filepath.Join(l.dir, "home", "copies", "copy")}}
}

func TestACheckoutThatFailsOrIsInterruptedAtAnyStepLeavesTheWorldAsItWas(t *testing.T) {
	t.Parallel()
	l, s := newCheckoutLab(t)
	points := l.points(s)
	if want := []string{"directory", "files", "inspect", "name"}; len(points) != 2*len(want) {
		t.Fatalf("the steps are %q", points)
	}
	before := l.world()
	for _, point := range points {
		for action, code := range map[string]int{"fail": 1, "int": 130, "term": 143} {
			if strings.Contains(point, "/name:") && action != "fail" {
				continue // once it is being named it is there
			}
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action), s.argv...)
			if o.code != code || o.stdout != "" || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s: %s ended with %d\n%s%s", point, action, o.code, o.stdout, o.stderr)
			}
			if d := diff(before, l.world()); d != "" {
				t.Fatalf("%s: the world changed:\n%s", point, d)
			}
		}
	}
}

func TestACheckoutThatIsKilledAtAnyStepIsWholeOrLeavesOnlyWhatOneCanTell(t *testing.T) {
	t.Parallel()
	l, s := newCheckoutLab(t)
	points := l.points(s)
	before, restore := l.world(), l.save()
	temporary := regexp.MustCompile(`(?m)^\+ "home/copies/\.agency-checkout-.*\n`)
	for _, point := range points {
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
			t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		left := temporary.ReplaceAllString(diff(before, l.world()), "")
		if exists(s.argv[4]) {
			for line := range strings.Lines(left) {
				if !strings.HasPrefix(line, `+ "home/copies/copy`) {
					t.Errorf("%s: %s", point, line)
				}
			}
			if got := l.read(filepath.Join(s.argv[4], "sub", "untracked")); got == "" {
				t.Errorf("%s: it is there, and not whole", point)
			}
		} else if left != "" {
			t.Errorf("%s: it left\n%s", point, left)
		}
		restore()
	}
}
