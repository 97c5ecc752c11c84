package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// newPathsLab makes a lab with the directories x and y, in its repository, so that kills count their changes too.
func newPathsLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	for name, content := range map[string]string{"x/change": "old\n", "x/gone": "gone\n", "x/dir/z": "z\n", "y/change": "old y\n", "y/gone/w": "w\n", "y/keep": "keep\n"} {
		l.write(filepath.Join(l.repo, name), content)
	}
	return l
}

// startOverPaths starts a sandbox over x and y and changes files of both in it.
func (l *lab) startOverPaths() (id string) {
	l.t.Helper()
	id = l.agency("start", "--path", "x", "--path", "y")
	l.agency("exec", id, "--", "sh", "-ec", "echo new >change; rm gone; rm -r dir; echo file >dir; cd "+l.repo+"/y; echo new >change; rm -r gone; mkdir new; echo new >new/file")
	return id
}

// pathFiles returns the files below x and y.
func (l *lab) pathFiles() map[string]string {
	l.t.Helper()
	found := map[string]string{}
	for _, dir := range []string{"x", "y"} {
		if err := filepath.WalkDir(filepath.Join(l.repo, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			found[strings.TrimPrefix(path, l.repo+"/")] = string(text)
			return err
		}); err != nil {
			l.t.Fatal(err)
		}
	}
	return found
}

// fixPaths repairs what doctor finds outside of every repository. It reports whether there was anything.
func (l *lab) fixPaths(point string) (found bool) {
	l.t.Helper()
	doctor := []string{"git", "-C", filepath.Join(l.dir, "home"), "agency", "doctor"}
	for range 8 {
		o := l.try(nil, doctor...)
		if o.code == 0 {
			return found
		}
		fix := doctorFix.FindStringSubmatch(o.stdout)
		if found = true; fix == nil {
			break
		}
		l.must(append(doctor, "--fix", fix[1])...) // may repair other findings too
	}
	l.t.Fatalf("%s: doctor finds %s", point, l.try(nil, doctor...).stdout)
	return found
}

// doctorFix matches the remedy of a finding.
var doctorFix = regexp.MustCompile(`(?m)^ +fix +git agency doctor --fix (\S+)$`)

var pathsLanded = map[string]string{"x/change": "new\n", "x/dir": "file\n", "y/change": "new\n", "y/new/file": "new\n", "y/keep": "keep\n"}

// TestPathsLandingKilledAtAnyChange kills a landing in plain directories before its system calls that change the disk. The next
// command makes it complete or undone, in both directories, and the next landing completes it.
func TestPathsLandingKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newPathsLab(t)
	id := l.startOverPaths()
	before, restore := l.pathFiles(), l.save()
	seen := map[string]int{}
	for n := 1; ; n += killStep(40, 2) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "land", id)
		if done {
			t.Logf("%d kill points: %v", n-1, seen)
			break
		}
		point := strconv.Itoa(n) + ", before " + last
		if l.fixPaths(point) {
			seen["found by doctor"]++
		} else {
			l.agency("land", "--dry-run", id) // as any command that takes the lock
		}
		switch files := l.pathFiles(); {
		case maps.Equal(files, before):
			seen["undone"]++
		case maps.Equal(files, pathsLanded):
			seen["complete"]++
		default:
			t.Fatalf("%s: neither undone nor complete: %q", point, files)
		}
		l.agency("land", id)
		if files := l.pathFiles(); !maps.Equal(files, pathsLanded) {
			t.Fatalf("%s: the next landing left %q", point, files)
		}
		if o := l.try(nil, "git-agency", "show", id, "--json"); o.code != 0 || !strings.Contains(o.stdout, `"landing": "landed"`) {
			t.Fatalf("%s: %+v", point, o)
		}
		restore()
	}
	if files := l.pathFiles(); !maps.Equal(files, pathsLanded) {
		t.Errorf("the landing left %q", files)
	}
}

// TestPathsStartKilledAtAnyChange kills the creation of a sandbox over plain directories. It exists or can be removed, and the next
// creation works.
func TestPathsStartKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	killPathsStart(t, newPathsLab(t), 60)
}

// TestPathsCopyKilledAtAnyChange does the same with a directory that is copied. Nothing is left of the copy.
func TestPathsCopyKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	l := newPathsLab(t)
	l.must("chown", "-R", "12345:12345", filepath.Join(l.repo, "y"))
	killPathsStart(t, l, 70)
}

// killPathsStart kills the creation of a sandbox over x and y, with the step of killStep(most, 2).
func killPathsStart(t *testing.T, l *lab, most int) {
	t.Helper()
	l.agency("discard", l.agency("start", "--path", "x")) // makes the repositories
	before, restore := l.pathFiles(), l.save()
	copies := filepath.Join(l.dir, "data", "paths", "copies")
	for n := 1; ; n += killStep(most, 2) {
		done, last := l.runKilledWithEnv(sweepEnv, n, "git-agency", "start", "--path", "x", "--path", "y")
		if done {
			t.Logf("%d kill points", n-1)
			break
		}
		point := strconv.Itoa(n) + ", before " + last
		l.fixPaths(point)
		if left, err := os.ReadDir(copies); len(left) > 0 {
			t.Fatalf("%s: doctor leaves %v, %v", point, left, err)
		}
		id := l.startOverPaths()
		if !maps.Equal(l.pathFiles(), before) {
			t.Fatalf("%s: the directories changed", point)
		}
		l.agency("land", id)
		restore()
	}
}

// TestPathsRestoreKilledAtAnyChange kills a restore. The sandbox exists with all changes, or can be removed, and the next restore works.
func TestPathsRestoreKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newPathsLab(t)
	id := l.startOverPaths()
	want := l.agency("diff", id)
	l.agency("discard", id)
	restore := l.save()
	for n := 1; ; n += killStep(60, 8) {
		done, last := l.runKilledWithEnv(sweepEnv, n, "git-agency", "restore", id)
		if done {
			t.Logf("%d kill points", n-1)
			break
		}
		point := strconv.Itoa(n) + ", before " + last
		l.fixPaths(point)
		for _, found := range append(strings.Fields(l.must("git", "-C", filepath.Join(l.dir, "home"), "agency", "ls", "--format", "%(invocation_id)")), l.agency("restore", id)) {
			if got := l.agency("diff", found); got != want {
				t.Fatalf("%s: %s has %s", point, found, got)
			}
		}
		restore()
	}
}
