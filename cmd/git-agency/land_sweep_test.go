package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stepsOf are all points of a verb with these steps.
func stepsOf(verb string, steps ...string) (points []string) {
	for _, step := range steps {
		points = append(points, verb+"/"+step+":before", verb+"/"+step+":after")
	}
	return points
}

// landings are what moves the integration branch.
var landings = []struct {
	sweep
	points   []string
	stands   string // how a message begins once it cannot be undone
	unlanded bool
}{
	{
		sweep: landSweep, stands: "is landed, but",
		points: stepsOf("land", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done", "aside", "registration", "leftovers", "tree"),
	},
	{
		sweep: unlandSweep, stands: "is taken back, but", unlanded: true,
		points: stepsOf("unland", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done"),
	},
}

// Until the branch has moved whatever goes wrong is undone. From then on it stands, is said to, and the next command
// finishes it.
func TestALandingThatFailsIsKilledOrInterruptedAtAnyStepIsUndoneOrStands(t *testing.T) {
	t.Parallel()
	for _, s := range landings {
		t.Run(s.verb, func(t *testing.T) {
			t.Parallel()
			l := newLandLab(t)
			if s.unlanded {
				l.must(landSweep.argv...)
				l.before, l.after, l.head, l.landed = l.after, l.before, l.landed, l.head
			}
			points := slices.DeleteFunc(l.points(s.sweep), func(p string) bool { return strings.HasPrefix(p, "discard/") })
			if !slices.Equal(points, s.points) {
				t.Fatalf("the steps are %q", points)
			}
			restore := l.save()
			before := withoutObjects(l.world())
			committed := false
			check := func(point string) {
				t.Helper()
				l.checkOwn(point)
				l.must(s.argv...)
				if s.unlanded {
					l := l.of(t)
					l.before, l.head = l.after, l.landed
					l.checkUnlanded(point, false)
				} else {
					l.checkLanded(point, "merge", false)
				}
			}
			for i, point := range points {
				committed = committed || point == s.verb+"/commit:after"
				for _, action := range []struct {
					name string
					code int
				}{{"fail", 1}, {"int", 130}, {"term", 143}, {"kill", -1}} {
					if action.name == "term" && i%4 != 0 {
						continue // it is what an int is
					}
					if testing.Short() && (action.name == "fail" && i%2 != 0 || action.name == "int" && i%4 != 1) {
						continue
					}
					o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action.name), s.argv...)
					where := point + "=" + action.name
					switch {
					case point == s.verb+"/commit:after" && action.name == "fail": // nothing is to be said of it
						if o.code != 0 {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						check(where)
						restore()
					case action.name == "kill" || committed && action.name == "fail":
						if o.code != action.code || !strings.Contains(o.stderr, s.stands) && o.code == 1 {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						check(where)
						restore()
					case committed: // it goes on
						if o.code != 0 && o.code != action.code {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						check(where)
						restore()
					default:
						if o.code != action.code || o.stdout != "" || strings.Contains(o.stderr, "clean-up") {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						if d := diff(before, withoutObjects(l.world())); d != "" {
							t.Fatalf("%s: the world changed:\n%s", where, d)
						}
					}
				}
			}
		})
	}
}

// Somebody who does not know of the landing goes on writing in the sandbox.
func TestWhatIsWrittenToASandboxWhileItLandsIsKept(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	restore := l.save()
	late := filepath.Join(l.sandboxOf(sweepID), "late")
	// Before we look it is not committed, and nothing lands.
	l.write(late, "l\n")
	before := withoutObjects(l.world())
	if o := l.try(nil, landSweep.argv...); o.code != 1 || !strings.Contains(o.stderr, "late") {
		t.Errorf("ended with %d: %s", o.code, o.stderr)
	}
	if d := diff(before, withoutObjects(l.world())); d != "" {
		t.Fatalf("the world changed:\n%s", d)
	}
	// Afterwards it is kept beside what has landed, in which it is not.
	for _, detach := range []string{"false", "true"} {
		for _, point := range []string{"land/objects:before", "land/commit:after", "land/done:after", "land/aside:after", "land/leftovers:after"} {
			restore()
			l.git("config", "agency.autoDetach", detach)
			wait := filepath.Join(l.dir, "home", "wait")
			ended := make(chan outcome)
			go func() {
				ended <- l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=wait", "TEST_WAIT="+wait), landSweep.argv...)
			}()
			if !waitFor(wait) {
				t.Fatalf("%s is never reached", point)
			}
			into := late
			if dirs, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(late)), "*", "readme")); err != nil || len(dirs) == 0 {
				dirs, _ = filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(late)), ".*", "readme"))
				into = filepath.Join(filepath.Dir(dirs[0]), "late") // as one does who stands in it
			}
			l.write(into, "l\n")
			if err := os.Remove(wait); err != nil {
				t.Fatal(err)
			}
			if o := <-ended; o.code != 0 {
				t.Errorf("%s: ended with %d: %s", point, o.code, o.stderr)
			}
			if !waitUntil(func() bool { return !exists(filepath.Dir(l.sandboxOf(sweepID))) }) {
				t.Fatalf("%s: the sandbox is still there", point)
			}
			l.checkLanded(point, "merge", false)
			if got := l.git("show", trash+":late"); got != "l" {
				t.Errorf("%s: of what came late %q is kept", point, got)
			}
		}
	}
}

// Whoever writes file after file, by their paths, loses none that they could write.
func TestNothingIsLostOfWhatIsWrittenToASandboxUntilItIsGone(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	sandbox, wait := l.sandboxOf(sweepID), filepath.Join(l.dir, "home", "wait")
	ended := make(chan outcome)
	go func() {
		ended <- l.try(append(slices.Clone(sweepEnv), "TEST_FAULT=land/objects:before=wait", "TEST_WAIT="+wait), landSweep.argv...)
	}()
	if !waitFor(wait) {
		t.Fatal("the landing never looks")
	}
	written := 0
	for ; written < 100_000; written++ {
		if err := os.WriteFile(filepath.Join(sandbox, fmt.Sprintf("w%d", written)), nil, 0o644); err != nil {
			break
		}
		if written == 10 {
			if err := os.Remove(wait); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o := <-ended; o.code != 0 {
		t.Fatalf("ended with %d: %s", o.code, o.stderr)
	}
	l.checkLanded("written to", "merge", false)
	kept := strings.Fields(l.git("ls-tree", "--name-only", trash))
	for i := range written {
		if !slices.Contains(kept, fmt.Sprintf("w%d", i)) {
			t.Fatalf("of %d that were written, %d is lost", written, i)
		}
	}
	t.Logf("%d were written", written)
}
