package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eachWay runs a test in every containment there is here.
func eachWay(t *testing.T, test func(t *testing.T, way Containment)) {
	for _, way := range containments() {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			test(t, way)
		})
	}
}

// task is a shell script to be run in a directory of its own.
func task(t *testing.T, way Containment, script string, args ...string) Task {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return Task{
		Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Label: "test", Grace: time.Minute, within: []Containment{way},
	}
}

func TestATaskHasItsOwnStreamsAndItsExitCode(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		var stdout, stderr bytes.Buffer
		k := task(t, way, "cat; echo err >&2; pwd; echo $AGENCY; exit 7")
		k.Stdin, k.Stdout, k.Stderr, k.Env = strings.NewReader("in\n"), &stdout, &stderr, append(k.Env, "AGENCY=yes")
		ending, err := k.Run(t.Context())
		if err != nil || ending != (Ending{Exit: 7, Contained: way}) {
			t.Errorf("got %+v, %v", ending, err)
		}
		if stdout.String() != "in\n"+k.Dir.Name()+"\nyes\n" || stderr.String() != "err\n" {
			t.Errorf("got %q and %q", &stdout, &stderr)
		}
	})
}

// alive is a pipe of which everything a task starts holds an end, unless it closes it: reading ends when
// nobody does any more.
func alive(t *testing.T, k *Task) (wait func()) {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	k.Stdout = write
	t.Cleanup(func() { _ = read.Close() })
	return func() {
		t.Helper()
		must(t, write.Close())
		must(t, read.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, read); err != nil {
			t.Errorf("something is left: %v", err)
		}
	}
}

const daemons = `
setsid sleep 1000 &
(setsid sh -c 'trap "" TERM HUP; sleep 1000; sleep 1000' &) &
sleep 1000 &
`

func TestNothingOutlivesATaskThatEnds(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := task(t, way, daemons+`(setsid sh -c 'trap "" TERM; : >"$1"; sleep 1000' sh "$1" &) & : <"$1"; exit 3`, ready)
		k.Grace = 50 * time.Millisecond
		gone := alive(t, &k)
		ending, err := k.Run(t.Context())
		if err != nil || ending.Exit != 3 || ending.Leftovers < 3 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

func TestNothingOutlivesATaskThatIsCancelled(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := task(t, way, daemons+`trap "" TERM; : >"$1"; while :; do sleep 1000; done`, ready)
		k.Grace = 50 * time.Millisecond
		gone := alive(t, &k)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			f, err := os.Open(ready) // waits for the script
			if err == nil {
				_ = f.Close()
			}
			cancel(cause)
		}()
		ending, err := k.Run(ctx)
		if !errors.Is(err, cause) || ending.Signal != syscall.SIGKILL || ending.Exit != 137 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

// A process that forks and exits is a new one each time somebody looks.
func TestWhatRunsAwayByForkingIsCaught(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := task(t, way, `perl -e '$SIG{TERM} = "IGNORE"; for (1..4) { last unless fork } while (1) { exit if fork }' & : >"$1"; sleep 1000`, ready)
		k.Grace = 10 * time.Millisecond
		gone := alive(t, &k)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			if f, err := os.Open(ready); err == nil {
				_ = f.Close()
			}
			cancel(errors.New("enough"))
		}()
		if _, err := k.Run(ctx); err == nil {
			t.Error("it was not cancelled")
		}
		gone()
	})
}

func TestAProgramThatCannotBeRunIsToldApartAsEnvDoes(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	put(t, filepath.Join(bin, "plain"), 0o644)
	put(t, filepath.Join(bin, "script"), 0o755)
	must(t, os.WriteFile(filepath.Join(bin, "noshebang"), []byte("echo hi\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(bin, "badshebang"), []byte("#!/no/such/interpreter\n"), 0o755))
	must(t, os.Mkdir(filepath.Join(bin, "dir"), 0o755))
	for program, want := range map[string]int{
		"script": 0, "./script": 0, filepath.Join(bin, "script"): 0,
		"nothing": 127, "./nothing": 127, "/nothing/at/all": 127, "badshebang": 127, "dir": 127,
		"plain": 126, "./plain": 126, "noshebang": 126, "./dir": 126,
	} {
		dir, err := os.Open(bin)
		must(t, err)
		k := Task{Argv: []string{program}, Dir: dir, Env: []string{"PATH=" + bin}, Label: "test"}
		ending, err := k.Run(t.Context())
		must(t, dir.Close())
		var cannot *CannotRunError
		switch {
		case want == 0 && (err != nil || ending.Exit != 0):
			t.Errorf("%s: got %+v, %v", program, ending, err)
		case want != 0 && (!errors.As(err, &cannot) || cannot.Code != want):
			t.Errorf("%s: got %+v, %v; want %d", program, ending, err, want)
		}
	}
}

// What stands in the directory of a task was written by whoever works there.
func TestATaskDoesNotFindProgramsWhereItStandsUnlessTold(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	put(t, filepath.Join(bin, "tool"), 0o755)
	dir, err := os.Open(bin)
	must(t, err)
	defer dir.Close()
	for _, path := range []string{"", ".", ":", "./", "../" + filepath.Base(bin)} {
		k := Task{Argv: []string{"tool"}, Dir: dir, Env: []string{"PATH=" + path}, Label: "test"}
		var cannot *CannotRunError
		if _, err := k.Run(t.Context()); !errors.As(err, &cannot) || cannot.Code != 127 {
			t.Errorf("PATH=%s: %v", path, err)
		}
	}
}

func TestATaskBeginsInTheDirectoryThatWasOpenedOrNotAtAll(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	meant, other := filepath.Join(root, "meant"), filepath.Join(root, "other")
	must(t, os.Mkdir(meant, 0o755))
	must(t, os.Mkdir(other, 0o755))
	dir, err := os.Open(meant)
	must(t, err)
	defer dir.Close()
	must(t, os.Rename(meant, filepath.Join(root, "gone")))
	must(t, os.Symlink(other, meant))
	var never *NotStartedError
	_, err = Task{Argv: []string{"touch", "here"}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}, Label: "test"}.Run(t.Context())
	if !errors.As(err, &never) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
		t.Errorf("it ran elsewhere: %v, %v", left, err)
	}
}

func TestATaskInheritsNothingButItsStreams(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		hold, err := os.Open(t.TempDir())
		must(t, err)
		defer hold.Close()
		stray, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0) // without close-on-exec, as from a careless parent
		must(t, err)
		defer func() { must(t, syscall.Close(stray)) }()
		var stdout bytes.Buffer
		k := task(t, way, `ls /proc/self/fd | wc -l`)
		k.Stdout, k.Hold = &stdout, []*os.File{hold}
		if ending, err := k.Run(t.Context()); err != nil || ending.Exit != 0 {
			t.Fatalf("got %+v, %v", ending, err)
		}
		if got := strings.TrimSpace(stdout.String()); got != "4" { // and the one that ls reads the list from
			t.Errorf("it has %s descriptors", got)
		}
	})
}

func TestATaskWithoutStreamsReadsAndWritesNothing(t *testing.T) {
	t.Parallel()
	k := task(t, PIDNamespace, `read x && exit 1; echo out; echo err >&2; exit 9`)
	if ending, err := k.Run(t.Context()); err != nil || ending.Exit != 9 {
		t.Errorf("got %+v, %v", ending, err)
	}
}

// The reader never ends; nobody waits for it when the program does not want more.
func TestATaskDoesNotWaitForItsInput(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	defer write.Close()
	k := task(t, PIDNamespace, `exit 4`)
	k.Stdin = read
	if ending, err := k.Run(t.Context()); err != nil || ending.Exit != 4 {
		t.Errorf("got %+v, %v", ending, err)
	}
}

func TestDeathBySignalIsTold(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT, syscall.SIGSEGV} {
			k := task(t, way, `kill -"$1" $$; sleep 1000`, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
			if ending, err := k.Run(t.Context()); err != nil || ending.Signal != sig || ending.Exit != 128+int(sig) {
				t.Errorf("%v: got %+v, %v", sig, ending, err)
			}
		}
	})
}

// Inside its namespace a program sees its supervisor, and may try.
func TestAProgramThatKillsItsSupervisorTakesEverythingWithIt(t *testing.T) {
	t.Parallel()
	k := task(t, PIDNamespace, daemons+`kill -9 1; kill -STOP 1; kill -SEGV 1; sleep 1000`)
	gone := alive(t, &k)
	ending, err := k.Run(t.Context())
	if err == nil && ending.Exit == 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	gone()
}

func TestWhoIsAskedToStopDoesInAnOrderlyWayAndThenAtOnce(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		for _, c := range []struct {
			trap   string
			times  int
			signal syscall.Signal
		}{{"TERM", 1, syscall.SIGTERM}, {"", 2, syscall.SIGKILL}} {
			ready := filepath.Join(t.TempDir(), "ready")
			must(t, syscall.Mkfifo(ready, 0o600))
			k := task(t, way, `if test -z "$2"; then trap "" TERM; fi; : >"$1"; while :; do sleep 1000; done`, ready, c.trap)
			k.Label = t.TempDir() // nobody else has that
			hold, err := os.Open(k.Label)
			must(t, err)
			k.Hold = []*os.File{hold}
			gone := alive(t, &k)
			go func() {
				f, err := os.Open(ready)
				if err == nil {
					_ = f.Close()
				}
				for range c.times {
					for _, pid := range Supervisors(k.Label) {
						_ = Stop(pid)
					}
					time.Sleep(20 * time.Millisecond) // two at the same moment are one
				}
			}()
			ending, err := k.Run(t.Context())
			if err != nil || !ending.Stopped || ending.Signal != c.signal {
				t.Errorf("got %+v, %v", ending, err)
			}
			gone()
		}
	})
}

func TestStoppedProcessesAreEndedToo(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		k := task(t, way, `setsid sh -c 'kill -STOP $$' & sleep 0; exit 0`)
		k.Grace = time.Hour // nobody waits for that
		gone := alive(t, &k)
		if ending, err := k.Run(t.Context()); err != nil || ending.Exit != 0 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

// In "program > >(tee log)", tee goes on for an instant after the program.
func TestLastWordsAreNotCutOff(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way Containment) {
		var stdout bytes.Buffer
		k := task(t, way, `echo last words | (sleep 0.1; cat) &`)
		k.Stdout = &stdout
		ending, err := k.Run(t.Context())
		if err != nil || ending.Leftovers != 0 || stdout.String() != "last words\n" {
			t.Errorf("got %+v, %v and %q", ending, err, &stdout)
		}
	})
}
