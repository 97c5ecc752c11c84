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

// The tool is killed at every single change of the disk. The next put leaves all of the first, or nothing.
func TestAPutKilledAtAnyChangeOfTheDiskHappenedOrDidNot(t *testing.T) {
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
		text, err := worldOf(tree)
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
	step := killStep(4, 1)
	for n := 1; ; n += step {
		ended, last := l.killed(n, first...)
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
			t.Fatalf("%d, before %s: neither nor:\n%s", n, last, diff(without, files()))
		}
		restore()
	}
	t.Logf("%d times undone, %d times done", undone, done)
	if undone < 10/step || done == 0 && step == 1 {
		t.Errorf("the sweep missed the states it is for: %d, %d", undone, done)
	}
}

func TestDoctorDoesNotTakeAPutThatLivesForOneThatWasKilled(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	wait := filepath.Join(l.dir, "home", "wait")
	for _, point := range []string{"put/stage:after", "put/place readme:after"} {
		env := append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=wait", "TEST_WAIT="+wait)
		s := l.onTerminal(80, env, "git-agency", "put", sweepID, "readme", ".")
		if !waitFor(wait) {
			t.Fatal(s.seen())
		}
		if found := l.findings(); len(found) > 0 {
			t.Errorf("%s: %+v", point, found)
		}
		if err := os.Remove(wait); err != nil {
			t.Fatal(err)
		}
		if o := s.ends(); o.code != 0 {
			t.Errorf("%s: ended with %d: %q", point, o.code, o.stdout)
		}
	}
}

func TestALongPutSaysHowFarItIsOnATerminal(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	big := filepath.Join(l.dir, "home", "big")
	l.write(big, strings.Repeat("0123456789abcde\n", 3<<16)) // 3 MiB
	// put runs on a terminal, where every look at the clock finds that some time has passed.
	put := func(passes time.Duration) string {
		t.Helper()
		master, slave := openTerminal(t, 80)
		s := &session{t: t, keyboard: master, grew: make(chan struct{}, 1), ended: make(chan struct{})}
		go s.watch()
		tool := newTool(slave, slave, gitagency.Options{Dir: l.repo, Env: l.env})
		var now time.Time
		tool.progressClock = func() time.Time { now = now.Add(passes); return now }
		code := tool.runCommandLine(t.Context(), []string{"git-agency", "put", sweepID, big, "new/"})
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		if code != 0 {
			t.Errorf("ended with %d", code)
		}
		return s.seen()
	}
	done := "put 1 file into " + sweepID + "\n"
	line := "\rputting files: 1/1, 3 MiB"
	got := put(time.Second)
	if want := line + "\r" + strings.Repeat(" ", len(line)-1) + "\r" + done; !strings.HasSuffix(got, want) || !strings.Contains(got, "\rputting files: 0/1, 2 MiB\r") {
		t.Errorf("shown was %q", got)
	}
	if got := put(time.Millisecond); got != done {
		t.Errorf("of one that is quick, shown was %q", got)
	}
}

func TestWhoIsAskedForInputCanLeave(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	pipe := filepath.Join(l.dir, "home", "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	s := l.onTerminal(80, sweepEnv, "git-agency", "put", sweepID, "--json", pipe)
	var writer *os.File
	if !waitUntil(func() (reads bool) {
		var err error
		writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	}) {
		t.Fatal(s.seen())
	}
	defer writer.Close()
	s.insists("\x03", "interrupted")
	if o := s.ends(); o.code != 130 {
		t.Errorf("ended with %d: %q", o.code, o.stdout)
	}
}

func TestASourceThatCannotBeReadIsSaidAndNothingIsPut(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	before := l.world()
	mem := "/proc/" + strconv.Itoa(os.Getpid()) + "/mem" // a regular file that nobody can read from its beginning
	o := l.try(nil, "git-agency", "put", sweepID, "readme", mem, "new/")
	if o.code != 1 || !strings.Contains(o.stderr, "mem: ") || strings.Contains(o.stderr, "hint") {
		t.Errorf("ended with %d: %s", o.code, o.stderr)
	}
	if d := diff(before, l.world()); d != "" {
		t.Errorf("the world changed:\n%s", d)
	}
}
