package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// TestPutKilledAtAnyChangeIsAllOrNothing kills a put before its system calls that change the disk and runs another put,
// after which all files of the killed put must be there, or none.
func TestPutKilledAtAnyChangeIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l, tree, _ := newPutLab(t)
	source := filepath.Join(l.dir, "home", "source")
	for _, name := range []string{"readme", "sub/one", "sub/new", "fresh/a", "fresh/b/c"} {
		l.write(filepath.Join(source, name), "new\n")
	}
	if err := os.Chmod(filepath.Join(source, "fresh", "b"), 0o500); err != nil {
		t.Fatal(err)
	}
	first := []string{"git-agency", "put", sweepID, source + "/.", "."}
	next := []string{"git-agency", "put", sweepID, source + "/readme", "next"}
	files := func() string {
		t.Helper()
		text, err := dumpFiles(tree)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	restore := l.save()
	l.must(next...)
	without := files()
	restore()
	l.must(first...)
	l.must(next...)
	with := files()
	restore()
	undone, done := 0, 0
	step := killStep(8, 1)
	for n := 1; ; n += step {
		ended, last := l.runKilled(n, first...)
		if ended {
			break
		}
		l.must(next...)
		switch files() {
		case without:
			undone++
		case with:
			done++
		default:
			t.Fatalf("%d, before %s: neither all nor nothing:\n%s", n, last, dumpDiff(without, files()))
		}
		restore()
	}
	t.Logf("%d puts undone, %d finished", undone, done)
	if undone < 10/step || done == 0 && step == 1 {
		t.Errorf("the sweep did not reach both states: %d undone, %d finished", undone, done)
	}
}

func TestDoctorIgnoresRunningPut(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	wait := filepath.Join(l.dir, "home", "wait")
	for _, point := range []string{"put/stage:after", "put/place readme:after"} {
		env := append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=wait", "TEST_WAIT="+wait)
		s := l.startOnTerminal(80, env, "git-agency", "put", sweepID, "readme", ".")
		if !waitForFile(wait) {
			t.Fatal(s.text())
		}
		if found := l.findings(); len(found) > 0 {
			t.Errorf("%s: %+v", point, found)
		}
		if err := os.Remove(wait); err != nil {
			t.Fatal(err)
		}
		if o := s.wait(); o.code != 0 {
			t.Errorf("%s: exited with %d: %q", point, o.code, o.stdout)
		}
	}
}

func TestPutShowsProgressOnTerminal(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	big := filepath.Join(l.dir, "home", "big")
	l.write(big, strings.Repeat("0123456789abcde\n", 3<<16)) // 3 MiB
	// put runs on a terminal with a clock that advances at every reading.
	put := func(step time.Duration) string {
		t.Helper()
		master, slave := openRawTerminal(t, 80)
		s := &terminalSession{t: t, master: master, updated: make(chan struct{}, 1), done: make(chan struct{})}
		go s.readOutput()
		tool := newTool(slave, slave, gitagency.Options{Dir: l.repo, Env: l.env})
		var now time.Time
		tool.ProgressClock = func() time.Time { now = now.Add(step); return now }
		code := tool.RunCommandLine(t.Context(), []string{"git-agency", "put", sweepID, big, "new/"})
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.done
		if code != 0 {
			t.Errorf("exited with %d", code)
		}
		return s.text()
	}
	done := "put 1 file into " + sweepID + "\n"
	line := "\rputting files: 1/1, 3 MiB"
	got := put(time.Second)
	if want := line + "\r" + strings.Repeat(" ", len(line)-1) + "\r" + done; !strings.HasSuffix(got, want) || !strings.Contains(got, "\rputting files: 0/1, 2 MiB\r") {
		t.Errorf("terminal output: %q", got)
	}
	if got := put(time.Millisecond); got != done {
		t.Errorf("a quick put shows progress: %q", got)
	}
}

func TestPutInterruptedWhileReadingInput(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	pipe := filepath.Join(l.dir, "home", "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	s := l.startOnTerminal(80, sweepEnv, "git-agency", "put", sweepID, "--json", pipe)
	var writer *os.File
	if !waitUntil(func() (reads bool) {
		var err error
		writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	}) {
		t.Fatal(s.text())
	}
	defer writer.Close()
	s.typeUntil("\x03", "interrupted")
	if o := s.wait(); o.code != 130 {
		t.Errorf("exited with %d: %q", o.code, o.stdout)
	}
}

func TestPutUnreadableSourceChangesNothing(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	before := l.dump()
	mem := "/proc/" + strconv.Itoa(os.Getpid()) + "/mem" // a regular file whose first byte cannot be read
	o := l.try(nil, "git-agency", "put", sweepID, "readme", mem, "new/")
	if o.code != 1 || !strings.Contains(o.stderr, "mem: ") || strings.Contains(o.stderr, "hint") {
		t.Errorf("exited with %d: %s", o.code, o.stderr)
	}
	if d := dumpDiff(before, l.dump()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
}
