package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startNamespaceWith starts a namespace and returns it with its label.
func startNamespaceWith(t *testing.T, w Walls) (*Namespace, string) {
	t.Helper()
	label := t.TempDir()
	held, err := os.Open(label)
	must(t, err)
	defer held.Close()
	r, err := w.StartNamespace(t.Context(), label, held)
	must(t, err)
	return r, label
}

// startNamespace starts a namespace that ends with the test, and returns it with its label.
func startNamespace(t *testing.T) (*Namespace, string) {
	t.Helper()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing)})
	t.Cleanup(func() {
		must(t, r.Close())
		if left := FindSupervisors(label); len(left) > 0 {
			t.Errorf("the init process is still running: %v", left)
		}
	})
	return r, label
}

// runBeside joins the namespace and runs a program in it until the end of the test, when it must still be running.
func runBeside(t *testing.T, label string) *Namespace {
	t.Helper()
	r, err := JoinNamespace(t.Context(), label)
	must(t, err)
	program := startScript(t, r, "echo here; read line; echo $line")
	t.Cleanup(func() {
		program.writeLine("gone")
		if ending, err := program.wait(); err != nil || ending.ExitCode != 0 || !strings.HasSuffix(program.output(), "gone\n") {
			t.Errorf("the program beside the test's ended with %+v, %v and wrote %q", ending, err, program.output())
		}
		must(t, r.Close())
	})
	return r
}

// scriptProcess is a shell script that runs in a namespace, with pipes to its standard input and output.
type scriptProcess struct {
	t        *testing.T
	stdin    *os.File
	stdout   *bufio.Reader
	captured bytes.Buffer
	done     chan struct{}
	result   TaskResult
	err      error
}

// startScript starts a shell script in a namespace and returns when the script has written a line.
func startScript(t *testing.T, r *Namespace, script string) *scriptProcess {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	must(t, err)
	in, stdin, err := os.Pipe()
	must(t, err)
	out, stdout, err := os.Pipe()
	must(t, err)
	p := &scriptProcess{t: t, stdin: stdin, stdout: bufio.NewReader(out), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.result, p.err = r.Run(context.WithoutCancel(t.Context()), Task{
			Argv: []string{"sh", "-c", script}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
			Stdin: in, Stdout: stdout, Grace: 100 * time.Millisecond,
		})
		for _, f := range []io.Closer{dir, in, stdout} {
			_ = f.Close()
		}
	}()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		<-p.done
		t.Fatalf("the script wrote %q: %v; %+v, %v", line, err, p.result, p.err)
	}
	p.captured.WriteString(line)
	return p
}

func (p *scriptProcess) writeLine(line string) {
	p.t.Helper()
	_, err := p.stdin.WriteString(line + "\n")
	must(p.t, err)
}

func (p *scriptProcess) wait() (TaskResult, error) {
	<-p.done
	_, _ = p.captured.ReadFrom(p.stdout)
	_ = p.stdin.Close()
	return p.result, p.err
}

func (p *scriptProcess) output() string { return p.captured.String() }

func TestTasksInNamespaceSeeOnlyEachOther(t *testing.T) {
	t.Parallel()
	r, label := startNamespace(t)
	first := startScript(t, r, "echo $$; read line")
	second, err := JoinNamespace(t.Context(), label)
	must(t, err)
	defer second.Close()
	p := startScript(t, second, "echo $PPID; kill -0 "+strings.TrimSpace(first.output())+" && echo there; ls -d /proc/[0-9]* | wc -l; ls -l /proc/1/ns/mnt /proc/self/ns/mnt 2>/dev/null | sed 's/.*-> //' | uniq | wc -l")
	if ending, err := p.wait(); err != nil || ending.ExitCode != 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	if out := p.output(); !strings.Contains(out, "\nthere\n") {
		t.Errorf("got %q", out)
	}
	first.writeLine("")
	if ending, err := first.wait(); err != nil || ending.ExitCode != 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	if second.Created || !r.Created || string(second.Plan) != planNothing {
		t.Errorf("got %v %v %q", second.Created, r.Created, second.Plan)
	}
}

func TestTaskEndSparesOtherTasksOfNamespace(t *testing.T) {
	t.Parallel()
	r, label := startNamespace(t)
	first := startScript(t, r, daemonScript+"echo up; read line; exit 3")
	joined, err := JoinNamespace(t.Context(), label)
	must(t, err)
	second := startScript(t, joined, "sleep 1000 & echo $!; read line; kill $! && echo was there")
	first.writeLine("")
	if ending, err := first.wait(); err != nil || ending.ExitCode != 3 || ending.Leftovers == 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	third := startScript(t, r, "echo in the seat again; ps -e >/dev/null 2>&1; exit 4")
	if ending, err := third.wait(); err != nil || ending.ExitCode != 4 {
		t.Errorf("got %+v, %v", ending, err)
	}
	second.writeLine("")
	if ending, err := second.wait(); err != nil || ending.ExitCode != 0 || !strings.Contains(second.output(), "was there") {
		t.Errorf("got %+v, %v, %q", ending, err, second.output())
	}
	must(t, joined.Close())
}

// TestCleanupAfterTaskSparesTasksThatStartMeanwhile starts tasks while the init process kills the leftovers of another:
// none of the new tasks may be taken for a leftover.
func TestCleanupAfterTaskSparesTasksThatStartMeanwhile(t *testing.T) {
	t.Parallel()
	r, _ := startNamespace(t)
	run := func(script string, stdin *os.File) (TaskResult, error) {
		dir, err := os.Open("/")
		if err != nil {
			return TaskResult{}, err
		}
		defer dir.Close()
		task := Task{Argv: []string{"sh", "-c", script}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}}
		if stdin != nil {
			task.Stdin = stdin
		}
		return r.Run(t.Context(), task)
	}
	for range 6 {
		var all sync.WaitGroup
		gate, open, err := os.Pipe()
		must(t, err)
		seated := make(chan struct{})
		all.Go(func() {
			<-seated
			if ending, err := run("read line; exit 0", gate); err != nil || ending.ExitCode != 0 { // runs until all others have ended
				t.Errorf("the task that runs throughout: %+v, %v", ending, err)
			}
		})
		leaver := startScript(t, r, `trap '' TERM; i=0; while test $i -lt 60; do sleep 60 & i=$((i+1)); done; echo here; read line`)
		close(seated)
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				for {
					if ending, err := run("true", nil); err != nil || ending.ExitCode != 0 {
						t.Errorf("a task that started meanwhile: %+v, %v", ending, err)
					}
					select {
					case <-leaver.done:
						return
					default:
					}
				}
			})
		}
		leaver.writeLine("")
		if _, err := leaver.wait(); err != nil {
			t.Errorf("the task with leftovers: %v", err)
		}
		others.Wait()
		must(t, open.Close())
		all.Wait()
		must(t, gate.Close())
	}
}

// TestNamespaceEndsWithLastMember closes the creator's connection as if the creator was killed: a member that joined
// keeps running commands.
func TestNamespaceEndsWithLastMember(t *testing.T) {
	t.Parallel()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing)})
	joined, err := JoinNamespace(t.Context(), label)
	must(t, err)
	must(t, r.conn.Close()) // as the kernel does for a killed process
	p := startScript(t, joined, "echo alone; exit 0")
	if ending, err := p.wait(); err != nil || ending.ExitCode != 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	must(t, joined.Close())
	if left := FindSupervisors(label); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := JoinNamespace(t.Context(), label); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("got %v", err)
	}
}

// TestNamespaceDoesNotWaitForObservers checks that an observer learns of the end of the namespace and does not delay it.
func TestNamespaceDoesNotWaitForObservers(t *testing.T) {
	t.Parallel()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing), OwnNetwork: true})
	observer, err := ObserveNamespace(t.Context(), label)
	must(t, err)
	brief, err := ObserveNamespace(t.Context(), label)
	must(t, err)
	must(t, brief.Close()) // must not end the namespace, which has one member
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(io.ErrNoProgress)
	if err := observer.Wait(cancelled); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
	p := startScript(t, r, "echo here; read line")
	ended := make(chan error, 1)
	go func() { ended <- observer.Wait(t.Context()) }()
	select {
	case err := <-ended:
		t.Fatalf("Wait returned before the namespace ended: %v", err)
	default:
	}
	p.writeLine("")
	if ending, err := p.wait(); err != nil || ending.ExitCode != 0 {
		t.Errorf("got %+v, %v", ending, err)
	}
	must(t, r.Close())
	if left := FindSupervisors(label); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	must(t, <-ended)
	must(t, observer.Close())
	if _, err := ObserveNamespace(t.Context(), label); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("got %v", err)
	}
}

// TestNamespaceDoesNotWaitForEarlyJoiner joins before the namespace is joinable: the joiner sees that, and does not keep
// the namespace alive when its creator is gone.
func TestNamespaceDoesNotWaitForEarlyJoiner(t *testing.T) {
	t.Parallel()
	label := t.TempDir()
	held, err := os.Open(label)
	must(t, err)
	defer held.Close()
	r, err := Walls{Plan: []byte(planNothing)}.BeginNamespace(t.Context(), label, held)
	must(t, err)
	must(t, r.WaitReady(t.Context()))
	early, err := JoinNamespace(t.Context(), label)
	must(t, err)
	if early.Joinable {
		t.Error("the namespace is joinable too early")
	}
	must(t, early.Close())
	early, err = JoinNamespace(t.Context(), label)
	must(t, err)
	must(t, r.conn.Close()) // as when the creator is killed
	if !early.EndedWithin(initTimeout) {
		t.Error("the early joiner keeps the namespace alive")
	}
	must(t, syscall.Close(r.initPIDFD))
	_ = early.Close()

	r, label = startNamespaceWith(t, Walls{Plan: []byte(planNothing)})
	late, err := JoinNamespace(t.Context(), label)
	must(t, err)
	if !late.Joinable {
		t.Error("the namespace is not joinable")
	}
	must(t, r.Close())
	if late.EndedWithin(100 * time.Millisecond) {
		t.Error("the namespace ended although a member had joined")
	}
	must(t, late.Close())
}

func TestStopTaskOnInitStopsAllTasks(t *testing.T) {
	t.Parallel()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing)})
	first := startScript(t, r, "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done")
	joined, err := JoinNamespace(t.Context(), label)
	must(t, err)
	second := startScript(t, joined, "trap 'exit 6' TERM; echo up; while :; do sleep 0.01; done")
	keepers := FindSupervisors(label)
	if len(keepers) != 1 {
		t.Fatalf("got %v", keepers)
	}
	must(t, StopTask(keepers[0]))
	for exit, p := range map[int]*scriptProcess{5: first, 6: second} {
		if ending, err := p.wait(); err != nil || ending.ExitCode != exit || !ending.Stopped {
			t.Errorf("got %+v, %v", ending, err)
		}
	}
	must(t, r.Close())
	must(t, joined.Close())
}

func TestKilledInitProcessEndsNamespace(t *testing.T) {
	t.Parallel()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing)})
	p := startScript(t, r, daemonScript+"echo up; sleep 1000")
	must(t, syscall.Kill(FindSupervisors(label)[0], syscall.SIGKILL))
	if ending, err := p.wait(); err != nil || ending.Signal != syscall.SIGKILL {
		t.Errorf("got %+v, %v", ending, err)
	}
	if _, err := p.stdout.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a process is still running: %v", err)
	}
	must(t, r.Close())
}

func TestCountTasksCountsTasksOfNamespace(t *testing.T) {
	t.Parallel()
	_, label := startNamespace(t)
	keeper := FindSupervisors(label)
	if len(keeper) != 1 || CountTasks(keeper[0]) != 0 {
		t.Errorf("in an empty namespace: %v", keeper)
	}
	for want := 1; want <= 3; want++ {
		runBeside(t, label)
		if got := CountTasks(keeper[0]); got != want {
			t.Errorf("%d programs: got %d", want, got)
		}
	}
}

func TestWallFailurePreventsCommand(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	for plan, want := range map[string]string{planApplyFails: "the wall fell over", planRestrictFails: "the wall has a hole"} {
		label := t.TempDir()
		held, err := os.Open(label)
		must(t, err)
		defer held.Close()
		r, err := Walls{Plan: []byte(plan)}.StartNamespace(t.Context(), label, held)
		var wall *WallError
		if plan == planApplyFails {
			if !errors.As(err, &wall) || wall.Error() != want {
				t.Errorf("got %v", err)
			}
			continue
		}
		must(t, err)
		_, err = r.Run(t.Context(), Task{Argv: []string{"touch", ran}, Dir: held, Env: []string{"PATH=" + os.Getenv("PATH")}})
		var not *NotStartedError
		if !errors.As(err, &not) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
		must(t, r.Close())
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran")
	}
}

func TestNamespaceListenAndDialUseItsNetwork(t *testing.T) {
	t.Parallel()
	r, label := startNamespaceWith(t, Walls{Plan: []byte(planNothing), OwnNetwork: true})
	defer r.Close()
	if conn, err := r.Dial(t.Context(), "127.0.0.1:3128"); err == nil || !strings.Contains(err.Error(), "unreachable") { // its loopback is not up
		t.Errorf("got %v, %v", conn, err)
	}
	l, err := r.Listen(t.Context(), "127.0.0.1:3128")
	must(t, err)
	defer l.Close()
	joined, err := JoinNamespace(t.Context(), label)
	must(t, err)
	defer joined.Close()
	if again, err := joined.Listen(t.Context(), "127.0.0.1:3128"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, %v", again, err)
	}
	other, err := joined.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	defer other.Close()
	if l.Addr().String() == other.Addr().String() {
		t.Errorf("got %v twice", other.Addr())
	}
}

func TestInitFDsFitIntoLowLimits(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for limit, want := range map[uint64]int{MinOpenFiles: joinFD, 2 * maxFD: joinFD, 1024: maxFD} {
		fds, err := initFDs(null, []*os.File{null, null}, limit)
		if err != nil || len(fds) != want+1 || fds[joinFD] != null.Fd() || fds[want] != null.Fd() || fds[controlFD+2] != ^uintptr(0) {
			t.Errorf("limit %d: %v, %v", limit, fds, err)
		}
	}
	if _, err := initFDs(null, slices.Repeat([]*os.File{null}, joinFD), 1024); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("more files than descriptors below joinFD: %v", err)
	}
}
