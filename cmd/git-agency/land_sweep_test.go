package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// faultPoints returns the fault points before and after each step of a verb.
func faultPoints(verb string, steps ...string) (points []string) {
	for _, step := range steps {
		points = append(points, verb+"/"+step+":before", verb+"/"+step+":after")
	}
	return points
}

// landingSweeps are the commands that update the integration branch, with their fault points.
var landingSweeps = []struct {
	sweep
	points   []string
	stands   string   // part of the error message after the branch was updated
	unlanded bool     // the command is unland
	options  []string // of start
}{
	{
		sweep: landSweep, stands: "is landed, but",
		points: faultPoints("land", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done", "aside", "registration", "leftovers", "tree"),
	},
	{
		sweep: overlayLandSweep, stands: "is landed, but", options: overlayArgs()[1:],
		points: faultPoints("land", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done", "aside", "registration", "leftovers", "tree"),
	},
	{
		sweep: cloneLandSweep, stands: "is landed, but", options: cloneArgs("none")[1:],
		points: faultPoints("land", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done", "aside", "registration", "leftovers", "tree"),
	},
	{
		sweep: unlandSweep, stands: "is unlanded, but", unlanded: true,
		points: faultPoints("unland", "objects", "note", "lock", "prepare", "files", "commit", "index", "record", "clear", "done"),
	},
}

// TestLandFaultAtAnyStep makes land and unland fail, or interrupts or kills them, at each step. Before the update of
// the branch everything is undone. After it the landing stands, the error says so, and the next command completes it.
func TestLandFaultAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, s := range landingSweeps {
		if testing.Short() && s.name == cloneLandSweep.name { // TestLandKilledAtAnyChange kills it
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := newLandLab(t, s.options...)
			if s.unlanded {
				l.must(landSweep.argv...)
				l.before, l.after, l.treeBefore, l.treeAfter = l.after, l.before, l.treeAfter, l.treeBefore
			}
			points := slices.DeleteFunc(l.faultPoints(s.sweep), func(p string) bool { return strings.HasPrefix(p, "discard/") })
			if !slices.Equal(points, s.points) {
				t.Fatalf("the fault points are %q, want %q", points, s.points)
			}
			restore := l.save()
			before := withoutWalls(l.dump())
			chosen, committed := chooseActions(points), false
			check := func(point string) {
				t.Helper()
				l.checkUncommitted(point)
				l.must(s.argv...)
				if s.unlanded {
					l := l.inSubtest(t)
					l.before, l.treeBefore = l.after, l.treeAfter
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
						continue // handled like int
					}
					// With -short a signal interrupts it at a few points. It is always killed before and after the update
					// of the branch.
					signalled := action.name == "int" && i%16 == 1 || action.name == "term" && i%16 == 8
					if !chosen(point, action.name) && !signalled && (action.name != "kill" || !strings.HasPrefix(point, s.verb+"/commit:")) {
						continue
					}
					o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action.name), s.argv...)
					where := point + "=" + action.name
					switch {
					case point == s.verb+"/commit:after" && action.name == "fail": // this failure is ignored
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
					case committed: // the command continues to its end
						if o.code != 0 && o.code != action.code {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						check(where)
						restore()
					default:
						if o.code != action.code || o.stdout != "" || strings.Contains(o.stderr, "clean-up") {
							t.Errorf("%s: ended with %d\n%s%s", where, o.code, o.stdout, o.stderr)
						}
						if d := dumpDiff(before, withoutWalls(l.dump())); d != "" {
							t.Fatalf("%s: files changed:\n%s", where, d)
						}
					}
				}
			}
		})
	}
}

// TestLandKeepsLateSandboxChanges writes a file to the sandbox during its landing. It must end up under the trash ref.
func TestLandKeepsLateSandboxChanges(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	restore := l.save()
	late := filepath.Join(l.sandboxPath(sweepID), "late")
	// An uncommitted file from before the landing makes it refuse.
	l.write(late, "l\n")
	before := withoutObjects(l.dump())
	if o := l.try(nil, landSweep.argv...); o.code != 1 || !strings.Contains(o.stderr, "late") {
		t.Errorf("ended with %d: %s", o.code, o.stderr)
	}
	if d := dumpDiff(before, withoutObjects(l.dump())); d != "" {
		t.Fatalf("files changed:\n%s", d)
	}
	// A file from during the landing does not land, and the trash ref keeps it.
	for n, detach := range []string{"false", "true"} {
		for i, point := range []string{"land/objects:before", "land/commit:after", "land/done:after", "land/aside:after", "land/leftovers:after"} {
			if testing.Short() && i%2 != n {
				continue
			}
			restore()
			l.git("config", "agency.autoDetach", detach)
			wait := filepath.Join(l.dir, "home", "wait")
			ended := make(chan outcome)
			go func() {
				ended <- l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=wait", "TEST_WAIT="+wait), landSweep.argv...)
			}()
			if !waitForFile(wait) {
				t.Fatalf("the step %s is never reached", point)
			}
			path := late
			if dirs, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(late)), "*", "readme")); err != nil || len(dirs) == 0 {
				dirs, _ = filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(late)), ".*", "readme"))
				path = filepath.Join(filepath.Dir(dirs[0]), "late") // as a process whose working directory was moved
			}
			l.write(path, "l\n")
			if err := os.Remove(wait); err != nil {
				t.Fatal(err)
			}
			if o := <-ended; o.code != 0 {
				t.Errorf("%s: ended with %d: %s", point, o.code, o.stderr)
			}
			if !waitUntil(func() bool { return !exists(filepath.Dir(l.sandboxPath(sweepID))) }) {
				t.Fatalf("%s: the sandbox was not removed", point)
			}
			l.checkLanded(point, "merge", false)
			if got := l.git("show", trashRef+":late"); got != "l" {
				t.Errorf("%s: the trash ref has %q for the late file", point, got)
			}
		}
	}
}

// TestLandKeepsFilesWrittenUntilRemoval writes files to the sandbox until a write fails because the tree is gone. The
// trash ref must have every file that was written.
func TestLandKeepsFilesWrittenUntilRemoval(t *testing.T) {
	t.Parallel()
	l := newLandLab(t)
	sandbox, wait := l.sandboxPath(sweepID), filepath.Join(l.dir, "home", "wait")
	ended := make(chan outcome)
	go func() {
		ended <- l.try(append(slices.Clone(sweepEnv), "TEST_FAULT=land/objects:before=wait", "TEST_WAIT="+wait), landSweep.argv...)
	}()
	if !waitForFile(wait) {
		t.Fatal("the step land/objects is never reached")
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
	kept := strings.Fields(l.git("ls-tree", "--name-only", trashRef))
	for i := range written {
		if !slices.Contains(kept, fmt.Sprintf("w%d", i)) {
			t.Fatalf("of %d written files, the trash ref lacks w%d", written, i)
		}
	}
	t.Logf("%d files were written", written)
}
