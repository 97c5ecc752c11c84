package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// roots are what a lab consists of.
var roots = []string{"repo", "data", "home"}

// saved is a copy of a lab, and what was there when the lab was last put back.
type saved struct {
	*lab
	aside string
	put   map[string]stamp // by path; nil when nobody knows
}

// stamp tells a file from every other, and from itself after a change. Of a directory it does not say what is in it.
type stamp struct {
	ino          uint64
	mode         fs.FileMode
	size         int64
	mtime, ctime int64
	attributes   string // of a directory: for an overlay they say what is not there
}

// same reports whether nothing is to be put back. When something was in a directory for a moment does not matter for that.
func (s stamp) same(other stamp) bool {
	if s.mode.IsDir() {
		s.mtime = other.mtime
	}
	return s == other
}

// save copies the whole lab aside; what it returns puts everything back.
func (l *lab) save() (restore func()) {
	l.t.Helper()
	s := &saved{lab: l, aside: filepath.Join(l.t.TempDir(), "saved")}
	l.t.Cleanup(func() { reachable(s.aside) })
	l.copyTree(l.dir, s.aside)
	return func() {
		l.t.Helper()
		if s.put == nil || s.mend() != nil {
			s.replace()
		}
		s.put, _ = stamps(l.dir) // where that cannot be told, everything is replaced again
	}
}

// replace puts everything back, whatever there is.
func (s *saved) replace() {
	s.t.Helper()
	for _, name := range roots {
		reachable(filepath.Join(s.dir, name))
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.copyTree(s.aside, s.dir)
}

// mend puts back what is not what was put back last. That is little: to make hundreds of files anew after each of hundreds of
// kills takes longer than all the rest. After an error nobody knows what is there.
func (s *saved) mend() error {
	const most = 500 // that are copied at once
	now, err := stamps(s.dir)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for path, is := range now {
		if s.put[path].same(is) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, path)); err != nil {
			return err
		}
	}
	for path, was := range s.put {
		missing[path] = !was.same(now[path])
	}
	argv := []string{"-a", "--parents", "-t", s.dir}
	for path, is := range missing {
		above := filepath.Dir(path)
		for above != "." && !missing[above] {
			above = filepath.Dir(above)
		}
		if is && above == "." { // else it comes with that
			argv = append(argv, path)
		}
	}
	if len(argv) > most {
		return fmt.Errorf("%d are missing", len(argv))
	}
	if len(argv) > 4 {
		cmd := exec.CommandContext(s.t.Context(), "cp", argv...)
		cmd.Dir = s.aside
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	for path, was := range s.put {
		if at := filepath.Join(s.dir, path); was.mode.IsDir() {
			when := time.Unix(0, was.mtime)
			if err := os.Chtimes(at, when, when); err != nil {
				return err
			}
		}
	}
	return nil
}

// What the sweeps rely on: whatever became of it, all of it is back, and git finds it as it was.
func TestALabIsPutBackAsItWas(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	restore := l.save()
	restore()
	look := func() string {
		return l.world() + l.must("find", l.repo, l.data, filepath.Join(l.dir, "home"), "-printf", "%p %y %m %T@ %l\n")
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
		l.shell(l.repo, lines)
		restore()
		if d := diff(before, look()); d != "" {
			t.Errorf("%s: it is not what it was:\n%s", lines, d)
		}
	}
}

// copyTree keeps modes and times, so that git's index stays fresh.
func (l *lab) copyTree(from, to string) {
	l.t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if out, err := exec.CommandContext(l.t.Context(), "cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		l.t.Fatalf("cp: %v\n%s", err, out)
	}
}
