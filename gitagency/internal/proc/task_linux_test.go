package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forEachContainment runs a subtest with every containment this machine supports, and in a namespace.
func forEachContainment(t *testing.T, test func(t *testing.T, way Containment)) {
	forContainments(t, append(supportedContainments(), inNamespace, besideAnother), test)
}

func forContainments(t *testing.T, ways []Containment, test func(t *testing.T, way Containment)) {
	for _, way := range ways {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			test(t, way)
		})
	}
}

// newTask returns a task that runs a shell script in a temporary directory.
func newTask(t *testing.T, way Containment, script string, args ...string) Task {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	k := Task{
		Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Label: "test", Grace: time.Minute, onlyContainments: []Containment{way},
	}
	switch way {
	case inNamespace:
		k.namespace, _ = startNamespace(t)
	case besideAnother:
		var label string
		k.namespace, label = startNamespace(t)
		runBeside(t, label)
	}
	return k
}

// Two more containments of the tests: the only task of a namespace, and a task beside another one.
const (
	inNamespace   Containment = "namespace"
	besideAnother Containment = "namespace-beside-another"
)

// reportedContainment is the containment that a TaskResult reports for way.
func reportedContainment(way Containment) Containment {
	if way == inNamespace || way == besideAnother {
		return PIDNamespace
	}
	return way
}

func TestTaskStreamsAndExitCode(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		var stdout, stderr bytes.Buffer
		k := newTask(t, way, "cat; echo err >&2; pwd; echo $AGENCY; exit 7")
		k.Stdin, k.Stdout, k.Stderr, k.Env = strings.NewReader("in\n"), &stdout, &stderr, append(k.Env, "AGENCY=yes")
		ending, err := k.Run(t.Context())
		if err != nil || ending != (TaskResult{ExitCode: 7, Containment: reportedContainment(way)}) {
			t.Errorf("got %+v, %v", ending, err)
		}
		if stdout.String() != "in\n"+k.Dir.Name()+"\nyes\n" || stderr.String() != "err\n" {
			t.Errorf("got %q and %q", &stdout, &stderr)
		}
	})
}

// trackProcesses makes a pipe the standard output of the task, so that all its descendants hold the write end. The
// returned function waits until none does.
func trackProcesses(t *testing.T, k *Task) (wait func()) {
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
			t.Errorf("a process is still running: %v", err)
		}
	}
}

// daemonScript starts three background processes: two in sessions of their own, of which one ignores SIGTERM.
const daemonScript = `
setsid sleep 1000 &
(setsid sh -c 'trap "" TERM HUP; sleep 1000; sleep 1000' &) &
sleep 1000 &
`

func TestTaskEndKillsLeftovers(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := newTask(t, way, daemonScript+`(setsid sh -c 'trap "" TERM; : >"$1"; sleep 1000' sh "$1" &) & : <"$1"; exit 3`, ready)
		k.Grace = 50 * time.Millisecond
		gone := trackProcesses(t, &k)
		ending, err := k.Run(t.Context())
		if err != nil || ending.ExitCode != 3 || ending.Leftovers < 3 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

func TestTaskCancelKillsAllProcesses(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := newTask(t, way, daemonScript+`trap "" TERM; : >"$1"; while :; do sleep 1000; done`, ready)
		k.Grace = 50 * time.Millisecond
		gone := trackProcesses(t, &k)
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
		if !errors.Is(err, cause) || ending.Signal != syscall.SIGKILL || ending.ExitCode != 137 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

// TestTaskKillsProcessesThatKeepForking runs processes that fork and exit, so every scan of /proc finds new ids.
func TestTaskKillsProcessesThatKeepForking(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := newTask(t, way, `perl -e '$SIG{TERM} = "IGNORE"; for (1..4) { last unless fork } while (1) { exit if fork }' & : >"$1"; sleep 1000`, ready)
		k.Grace = 10 * time.Millisecond
		gone := trackProcesses(t, &k)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			if f, err := os.Open(ready); err == nil {
				_ = f.Close()
			}
			cancel(errors.New("enough"))
		}()
		if _, err := k.Run(ctx); err == nil {
			t.Error("Run returned no error")
		}
		gone()
	})
}

func TestTaskCannotRunCodes(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	writeProgram(t, filepath.Join(bin, "plain"), 0o644)
	writeProgram(t, filepath.Join(bin, "script"), 0o755)
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
		case want == 0 && (err != nil || ending.ExitCode != 0):
			t.Errorf("%s: got %+v, %v", program, ending, err)
		case want != 0 && (!errors.As(err, &cannot) || cannot.Code != want):
			t.Errorf("%s: got %+v, %v; want %d", program, ending, err, want)
		}
	}
}

// TestTaskIgnoresRelativePATHEntries protects against programs that an agent wrote into the task's directory.
func TestTaskIgnoresRelativePATHEntries(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	writeProgram(t, filepath.Join(bin, "tool"), 0o755)
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

func TestTaskRefusesReplacedDirectory(t *testing.T) {
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
		t.Errorf("the task ran in another directory: %v, %v", left, err)
	}
}

func TestTaskInheritsOnlyStreams(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		hold, err := os.Open(t.TempDir())
		must(t, err)
		defer hold.Close()
		stray, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0) // without close-on-exec, as from a careless parent
		must(t, err)
		defer func() { must(t, syscall.Close(stray)) }()
		var stdout bytes.Buffer
		k := newTask(t, way, `ls /proc/self/fd | wc -l`)
		k.Stdout, k.HoldOpen = &stdout, []*os.File{hold}
		if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 0 {
			t.Fatalf("got %+v, %v", ending, err)
		}
		if got := strings.TrimSpace(stdout.String()); got != "4" { // the three streams and the directory that ls reads
			t.Errorf("the task has %s descriptors", got)
		}
	})
}

func TestTaskWithoutStreamsUsesDevNull(t *testing.T) {
	t.Parallel()
	k := newTask(t, PIDNamespace, `read x && exit 1; echo out; echo err >&2; exit 9`)
	if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 9 {
		t.Errorf("got %+v, %v", ending, err)
	}
}

// TestTaskDoesNotWaitForStdin uses a standard input that never ends.
func TestTaskDoesNotWaitForStdin(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	defer write.Close()
	k := newTask(t, PIDNamespace, `exit 4`)
	k.Stdin = read
	if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 4 {
		t.Errorf("got %+v, %v", ending, err)
	}
}

func TestTaskReportsSignal(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT, syscall.SIGSEGV} {
			k := newTask(t, way, `kill -"$1" $$; sleep 1000`, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
			if ending, err := k.Run(t.Context()); err != nil || ending.Signal != sig || ending.ExitCode != 128+int(sig) {
				t.Errorf("%v: got %+v, %v", sig, ending, err)
			}
		}
	})
}

// TestTaskThatSignalsSupervisorLeavesNoProcess uses a pid namespace, in which the program sees its supervisor as process 1.
func TestTaskThatSignalsSupervisorLeavesNoProcess(t *testing.T) {
	t.Parallel()
	k := newTask(t, PIDNamespace, daemonScript+`kill -9 1; kill -STOP 1; kill -SEGV 1; sleep 1000`)
	gone := trackProcesses(t, &k)
	ending, err := k.Run(t.Context())
	if err == nil && ending.ExitCode == 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	gone()
}

func TestStopTaskSendsSIGTERMThenSIGKILL(t *testing.T) {
	t.Parallel()
	forContainments(t, supportedContainments(), func(t *testing.T, way Containment) {
		for _, c := range []struct {
			trap   string
			again  bool
			signal syscall.Signal
		}{{"TERM", false, syscall.SIGTERM}, {"", true, syscall.SIGKILL}} {
			ready := filepath.Join(t.TempDir(), "ready")
			must(t, syscall.Mkfifo(ready, 0o600))
			k := newTask(t, way, `if test -z "$2"; then trap "" TERM; fi; : >"$1"; while :; do sleep 1000; done`, ready, c.trap)
			k.Label = t.TempDir() // unique
			hold, err := os.Open(k.Label)
			must(t, err)
			k.HoldOpen = []*os.File{hold}
			gone := trackProcesses(t, &k)
			go func() {
				waitForFIFO(ready)
				for again := true; again && t.Context().Err() == nil; again = c.again { // signals sent at once may be merged, so repeat
					for _, pid := range FindSupervisors(k.Label) {
						_ = StopTask(pid)
					}
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

// TestSignalAndRequestOfParentCountAsOne ends a task in both ways, as an engine does that signals all processes of a job. A further
// request kills it.
func TestSignalAndRequestOfParentCountAsOne(t *testing.T) {
	t.Parallel()
	forContainments(t, supportedContainments(), func(t *testing.T, way Containment) {
		for _, c := range []struct {
			name        string
			parentFirst bool
			kill        bool
			want        int // exit code
		}{{"signal first", false, false, 5}, {"parent first", true, false, 5}, {"killed by a third", false, true, 128 + int(syscall.SIGKILL)}} {
			dir := t.TempDir()
			ready, told, end := filepath.Join(dir, "ready"), filepath.Join(dir, "told"), filepath.Join(dir, "end")
			for _, fifo := range []string{ready, told, end} {
				must(t, syscall.Mkfifo(fifo, 0o600))
			}
			// SIGKILL would come while it counts, at the latest.
			count := `i=0; while test $i -lt 100000; do i=$((i+1)); done`
			k := newTask(t, way, `trap 'trap "" TERM; : >"$2"; : <"$3"; `+count+`; exit 5' TERM; : >"$1"; while :; do :; done`, ready, told, end)
			k.Label = t.TempDir() // unique
			hold, err := os.Open(k.Label)
			must(t, err)
			k.HoldOpen = []*os.File{hold}
			gone := trackProcesses(t, &k)
			ctx, cancel := context.WithCancel(t.Context())
			force := make(chan struct{})
			k.Force = force
			signal := func() {
				for _, pid := range FindSupervisors(k.Label) {
					_ = StopTask(pid) // it may have ended
				}
			}
			requests := []func(){signal, cancel}
			if c.parentFirst {
				slices.Reverse(requests)
			}
			go func() {
				waitForFIFO(ready)
				requests[0]()
				waitForFIFO(told)
				requests[1]()
				if c.kill {
					close(force)
					return
				}
				if f, err := os.OpenFile(end, os.O_WRONLY, 0); err == nil {
					_ = f.Close()
				}
			}()
			ending, err := k.Run(ctx)
			if ending.ExitCode != c.want || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %+v, %v", c.name, ending, err)
			}
			gone()
			cancel()
		}
	})
}

func TestEndCounterTellsCopies(t *testing.T) {
	t.Parallel()
	const parent = -1
	for _, c := range []struct {
		requests []time.Duration // time of a signal, or parent
		copies   string          // of each request
	}{
		{[]time.Duration{0, signalWindow}, "nn"},
		{[]time.Duration{parent, parent}, "nn"},
		{[]time.Duration{0, parent, parent}, "nyn"},
		{[]time.Duration{parent, 0, signalWindow}, "nyn"},
		{[]time.Duration{0, 1, parent, 2, signalWindow}, "nyyyn"}, // of an engine, of the init process, and the parent
	} {
		var counter endCounter
		got, began := "", time.Now()
		for _, at := range c.requests {
			isCopy := false
			if at == parent {
				isCopy = counter.byParent()
			} else {
				isCopy = counter.bySignal(began.Add(at))
			}
			got += map[bool]string{false: "n", true: "y"}[isCopy]
		}
		if got != c.copies {
			t.Errorf("%v: got %s, want %s", c.requests, got, c.copies)
		}
	}
}

// waitForFIFO waits until a process has opened a FIFO for writing.
func waitForFIFO(path string) {
	if f, err := os.Open(path); err == nil {
		_ = f.Close()
	}
}

func TestTaskEndKillsStoppedProcesses(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		k := newTask(t, way, `setsid sh -c 'kill -STOP $$' & sleep 0; exit 0`)
		k.Grace = time.Hour // must not be waited for
		gone := trackProcesses(t, &k)
		if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 0 {
			t.Errorf("got %+v, %v", ending, err)
		}
		gone()
	})
}

// TestTaskWaitsForLateOutput covers "program > >(tee log)", where tee ends a moment after the program.
func TestTaskWaitsForLateOutput(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		for tries := 0; ; tries++ {
			var stdout bytes.Buffer
			k := newTask(t, way, `echo last words | (sleep 0.05; cat) &`)
			k.Stdout = &stdout
			start := time.Now()
			ending, err := k.Run(t.Context())
			if err == nil && ending.Leftovers == 0 && stdout.String() == "last words\n" {
				return
			}
			if time.Since(start) < leftoverGrace || tries == 20 { // else the machine was too busy to run cat in time
				t.Fatalf("got %+v, %v and %q", ending, err, &stdout)
			}
		}
	})
}

func TestTaskPassesArbitraryBytes(t *testing.T) {
	t.Parallel()
	var all []byte
	for b := 1; b < 256; b++ {
		all = append(all, byte(b))
	}
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "caf\xe9"), 0o755))
	dir, err := os.Open(filepath.Join(root, "caf\xe9"))
	must(t, err)
	defer dir.Close()
	var stdout bytes.Buffer
	k := Task{
		Argv: []string{"sh", "-c", `printf %s "$1" "$ALL" "$PWD"`, "sh", string(all)}, Dir: dir, Label: "test",
		Env: []string{"PATH=" + os.Getenv("PATH"), "ALL=" + string(all)}, Stdout: &stdout,
	}
	if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 0 {
		t.Fatalf("got %+v, %v", ending, err)
	}
	if want := string(all) + string(all) + dir.Name(); stdout.String() != want {
		t.Errorf("got %q", &stdout)
	}
}

func TestTaskTimeout(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		for _, timeout := range []time.Duration{1, 20 * time.Millisecond} {
			k := newTask(t, way, `exec sleep 1000`) // without exec, the shell could exit with sleep's status before its own SIGTERM
			k.Timeout = timeout
			ending, err := k.Run(t.Context())
			if !errors.Is(err, ErrTimeout) || ending.Signal != syscall.SIGTERM {
				t.Errorf("%v: got %+v, %v", timeout, ending, err)
			}
		}
	})
}

// TestTaskTimeoutIgnoresLeftovers lets a command exit in time and leave a process whose termination takes longer than
// the timeout: the result is the command's.
func TestTaskTimeoutIgnoresLeftovers(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		ready := filepath.Join(t.TempDir(), "ready")
		must(t, syscall.Mkfifo(ready, 0o600))
		k := newTask(t, way, `sh -c 'trap "" TERM; : >"$0"; while :; do sleep 0.01; done' "$1" & : <"$1"; exit 3`, ready)
		k.Timeout, k.Grace = 2*time.Second, 2*time.Second // terminating the leftover takes longer than the timeout
		ending, err := k.Run(t.Context())
		if err != nil || ending.ExitCode != 3 || ending.Leftovers == 0 {
			t.Errorf("got %+v, %v", ending, err)
		}
	})
}

func TestTaskForceSkipsGrace(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		hurry := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		k := newTask(t, way, `trap "" TERM; sleep 1000; sleep 1000`)
		k.Grace, k.Force, k.OnRunning = time.Hour, hurry, func() { cancel(); close(hurry) }
		if _, err := k.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestTaskDoesNotWaitForOutsideHolderOfOutput lets a process outside the task open the output pipe and keep it open.
func TestTaskDoesNotWaitForOutsideHolderOfOutput(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	k := newTask(t, Subreaper, `echo said; echo /proc/$$/fd/1 >"$1"; cat "$2"`, filepath.Join(t.TempDir(), "where"), filepath.Join(t.TempDir(), "go"))
	where, on := k.Argv[4], k.Argv[5]
	must(t, syscall.Mkfifo(where, 0o600))
	must(t, syscall.Mkfifo(on, 0o600))
	k.Stdout = &stdout
	go func() {
		name, err := os.ReadFile(where)
		if err != nil {
			return
		}
		held, err := os.OpenFile(strings.TrimSpace(string(name)), os.O_WRONLY, 0)
		if err == nil {
			t.Cleanup(func() { _ = held.Close() })
		}
		_ = os.WriteFile(on, nil, 0)
	}()
	if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 0 || stdout.String() != "said\n" {
		t.Errorf("got %+v, %v and %q", ending, err, &stdout)
	}
}

func TestTaskReportsOutputError(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	k := newTask(t, PIDNamespace, `touch "$1"; echo some; exit 2`, filepath.Join(t.TempDir(), "ran"))
	k.Stdout = failingWriter{full}
	ending, err := k.Run(t.Context())
	var output *OutputError
	if !errors.As(err, &output) || !errors.Is(err, full) || ending.Containment != PIDNamespace {
		t.Errorf("got %+v, %v", ending, err)
	}
	if _, err := os.Stat(k.Argv[4]); err != nil {
		t.Error(err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestTaskContinuesTracedProgram runs a program that calls PTRACE_TRACEME and so stops at its next exec.
func TestTaskContinuesTracedProgram(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		k := newTask(t, way, "")
		k.Argv = []string{"perl", "-e", `syscall(101, 0, 0, 0, 0); exec "sh", "-c", "exit 3"`} // ptrace(PTRACE_TRACEME)
		if runtime.GOARCH != "amd64" {
			t.Skip("skipped: ptrace has another system call number here")
		}
		if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 3 {
			t.Errorf("got %+v, %v", ending, err)
		}
	})
}

func TestCancelContinuesStoppedSupervisor(t *testing.T) {
	t.Parallel()
	k := newTask(t, Subreaper, `kill -STOP $PPID; exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	gone := trackProcesses(t, &k)
	k.OnRunning = cancel
	if _, err := k.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	gone()
}

func TestTaskReportsKilledSupervisor(t *testing.T) {
	t.Parallel()
	k := newTask(t, Subreaper, `kill -9 $PPID; exec sleep 0`)
	if ending, err := k.Run(t.Context()); !errors.Is(err, ErrSupervisorKilled) || ending.ExitCode != 137 {
		t.Errorf("got %+v, %v", ending, err)
	}
}

// TestFindSupervisorsRequiresOpenLabel starts a process named like a supervisor that does not hold the label open.
func TestFindSupervisorsRequiresOpenLabel(t *testing.T) {
	t.Parallel()
	label := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(label, 0o600))
	cat, err := exec.LookPath("cat")
	must(t, err)
	impostor := &exec.Cmd{Path: cat, Args: []string{supervisorName, label}} // cat waits for a writer
	must(t, impostor.Start())
	if found := FindSupervisors(label); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	must(t, os.WriteFile(label, nil, 0))
	must(t, impostor.Wait())
}

// TestRootNeedsNamespace must not run the program in the root of the caller instead.
func TestRootNeedsNamespace(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var failed *NotStartedError
	if _, err := (Task{Argv: []string{"true"}, Dir: dir, Env: os.Environ(), Root: dir.Name()}).Run(t.Context()); !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
}
