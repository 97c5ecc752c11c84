package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// labRoots are the directories that make up a lab.
var labRoots = []string{"repo", "data", "home"}

// savedLab is a copy of a lab, with the stamps of its files after the last restore.
type savedLab struct {
	dir      string // of the lab
	copyDir  string
	restored map[string]fileStamp // by path; nil: unknown
}

// fileStamp identifies a file and its version. The stamp of a directory does not cover its entries.
type fileStamp struct {
	ino          uint64
	mode         fs.FileMode
	size         int64
	mtime, ctime int64
	xattrs       string // of a directory; overlayfs marks opaque directories by them
}

// unchanged reports whether the file needs no restore. The mtime of a directory is ignored: entries may have come and
// gone, and restoreChanged sets it anyway.
func (s fileStamp) unchanged(other fileStamp) bool {
	if s.mode.IsDir() {
		s.mtime = other.mtime
	}
	return s == other
}

// save copies the whole lab and returns a function that restores it.
func (l *lab) save() (restore func()) {
	l.t.Helper()
	s := newSavedLab(l)
	return func() {
		l.t.Helper()
		s.restore(l.t)
	}
}

// newSavedLab copies the whole lab.
func newSavedLab(l *lab) *savedLab {
	l.t.Helper()
	s := &savedLab{dir: l.dir, copyDir: filepath.Join(l.t.TempDir(), "saved")}
	l.t.Cleanup(func() { makeAccessible(s.copyDir) })
	copyTree(l.t, s.dir, s.copyDir)
	return s
}

// restore restores the lab. It ends the running test t on an error: that of a subtest, not that of the test that made
// the lab.
func (s *savedLab) restore(t *testing.T) {
	t.Helper()
	if s.restored == nil || s.restoreChanged(t) != nil {
		s.replaceAll(t)
	}
	s.restored, _ = fileStamps(s.dir) // nil after an error: the next restore replaces everything
}

// forEachCase runs a test in a subtest for each case. The cases share a few labs, which are restored after each case:
// that takes less time than making a lab. The test can restore the lab itself too. Every file must be the same before each
// case. With -short it runs the cases that thin selects.
func forEachCase(t *testing.T, names []string, newLab func(t *testing.T) *lab, test func(l *lab, number int, restore func())) {
	t.Helper()
	labs := 4 // in parallel
	if testing.Short() {
		labs = 2
	}
	var numbers []int
	for i := range names {
		if isSelected(i, len(names)) {
			numbers = append(numbers, i)
		}
	}
	for first := range labs {
		t.Run("lab"+strconv.Itoa(first), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			s := newSavedLab(l)
			s.restore(t) // the first restore copies everything; later ones copy only the files that changed since
			before := l.dump()
			for i := first; i < len(numbers); i += labs {
				number := numbers[i]
				t.Run(names[number], func(t *testing.T) { test(l.withT(t), number, func() { s.restore(t) }) })
				if err := removeOthers(l.dir); err != nil {
					t.Fatal(err)
				}
				s.restore(t)
				if d := dumpDiff(before, l.dump()); d != "" {
					t.Fatalf("the lab restored after %s differs:\n%s", names[number], d)
				}
			}
		})
	}
}

// removeOthers removes everything but labRoots from a directory.
func removeOthers(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); !slices.Contains(labRoots, e.Name()) {
			makeAccessible(path)
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// replaceAll removes the lab's directories and copies them anew.
func (s *savedLab) replaceAll(t *testing.T) {
	t.Helper()
	for _, name := range labRoots {
		makeAccessible(filepath.Join(s.dir, name))
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyTree(t, s.copyDir, s.dir)
}

// restoreChanged restores only the files that changed since the last restore. They are few, and copying hundreds of files
// after each of hundreds of kills would take longer than the sweep itself. After an error the state is undefined.
func (s *savedLab) restoreChanged(t *testing.T) error {
	t.Helper()
	const most = 500 // arguments of one cp
	now, err := fileStamps(s.dir)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for path, is := range now {
		if s.restored[path].unchanged(is) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, path)); err != nil {
			return err
		}
	}
	for path, was := range s.restored {
		missing[path] = !was.unchanged(now[path])
	}
	argv := []string{"-a", "--parents", "-t", s.dir}
	for path, is := range missing {
		above := filepath.Dir(path)
		for above != "." && !missing[above] {
			above = filepath.Dir(above)
		}
		if is && above == "." { // else it is copied with the missing directory above
			argv = append(argv, path)
		}
	}
	if len(argv) > most {
		return fmt.Errorf("%d files are missing", len(argv))
	}
	if len(argv) > 4 {
		cmd := exec.CommandContext(t.Context(), "cp", argv...)
		cmd.Dir = s.copyDir
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	for path, was := range s.restored {
		if at := filepath.Join(s.dir, path); was.mode.IsDir() {
			when := time.Unix(0, was.mtime)
			if err := os.Chtimes(at, when, when); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestLabSaveRestores checks what the sweeps rely on: restore brings back contents, modes, links and mtimes after any
// change.
func TestLabSaveRestores(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	restore := l.save()
	restore()
	look := func() string {
		return l.dump() + l.must("find", l.repo, l.data, filepath.Join(l.dir, "home"), "-printf", "%p %y %m %T@ %l\n")
	}
	before := look()
	for _, lines := range []string{
		"true",
		"echo x >>readme; echo y >new; rm run.sh; mkdir -p a/b; echo z >a/b/c",
		"rm -r sub; echo sub >sub; rm readme; ln -s sub readme",
		"rm -r sub; mkdir sub; echo other >sub/one; chmod 700 sub; chmod 600 run.sh",
		"touch readme sub; git commit -qam more; git gc -q; git pack-refs --all",
		"ln readme twice; rm -rf .git",
		"rm -rf ../data ../home/own; mkdir ../data",
	} {
		l.runShell(l.repo, lines)
		restore()
		if d := dumpDiff(before, look()); d != "" {
			t.Errorf("%s: the restored lab differs:\n%s", lines, d)
		}
	}
}

// copyTree copies a directory with modes and mtimes, so that git's index stays valid.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}
