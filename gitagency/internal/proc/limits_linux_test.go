package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTaskLimitsApplyBeforeExec(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		var out bytes.Buffer
		k := newTask(t, way, "ulimit -f; ulimit -d; ulimit -Hd; nice; exit 3")
		k.Stdout, k.Limits = &out, Limits{FileSize: 64 << 10, Data: 256 << 20, Nice: 7}
		ending, err := k.Run(t.Context())
		if err != nil || ending.ExitCode != 3 {
			t.Fatalf("got %+v, %v", ending, err)
		}
		if got, want := out.String(), fmt.Sprintf("128\n262144\n262144\n%d\n", max(7, inheritedNice(t))); got != want { // in the units of sh
			t.Errorf("the program saw %q, want %q", got, want)
		}
	})
}

// inheritedNice is the nice value of the test process. A limit makes a program nicer than that, never less nice.
func inheritedNice(t *testing.T) int {
	t.Helper()
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	must(t, err)
	return 20 - priority // the system call returns 20 minus the nice value
}

func TestTaskWithLimitsIsNotTraced(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		var out bytes.Buffer
		k := newTask(t, way, "grep TracerPid /proc/self/status /proc/$$/status; kill -TRAP $$")
		k.Stdout, k.Limits = &out, Limits{Nice: 1}
		ending, err := k.Run(t.Context())
		if err != nil || ending.Signal != unix.SIGTRAP || strings.Count(out.String(), ":\t0\n") != 2 {
			t.Errorf("got %+v, %v: %s", ending, err, &out)
		}
	})
}

func TestTaskFileSizeLimit(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		k := newTask(t, way, "until test \"$(ulimit -f)\" != unlimited; do :; done; exec dd if=/dev/zero of=file bs=1024 count=100")
		k.Limits = Limits{FileSize: 10 << 10}
		ending, err := k.Run(t.Context())
		if err != nil || ending.Signal != unix.SIGXFSZ {
			t.Errorf("got %+v, %v", ending, err)
		}
		if fi, err := os.Stat(filepath.Join(k.Dir.Name(), "file")); err != nil || fi.Size() != 10<<10 {
			t.Errorf("the file has %v bytes, %v", fi.Size(), err)
		}
	})
}

func TestLimitsAreNeverRaised(t *testing.T) {
	t.Parallel()
	var was unix.Rlimit
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	must(t, Limits{FileSize: 1000, Nice: 5}.applyTo(pid))
	must(t, Limits{FileSize: 2000, Nice: 3}.applyTo(pid))
	must(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was))
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || 20-nice != max(5, inheritedNice(t)) || was != (unix.Rlimit{Cur: 1000, Max: 1000}) {
		t.Errorf("niceness %d, %v; files %+v", 20-nice, err, was)
	}
}

func TestTaskWithLimitsReportsCannotRun(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		for code, program := range map[int]string{127: "/no/such/program", 126: "/etc/passwd"} {
			k := newTask(t, way, "")
			k.Argv, k.Limits = []string{program}, Limits{FileSize: 1 << 20}
			_, err := k.Run(t.Context())
			var cannot *CannotRunError
			if !errors.As(err, &cannot) || cannot.Code != code {
				t.Errorf("%s: got %v", program, err)
			}
		}
	})
}

func TestTaskCgroupHoldsOnlyProgram(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		procs, err := os.Create(filepath.Join(t.TempDir(), "cgroup.procs")) // a regular file instead of a kernel interface
		must(t, err)
		defer procs.Close()
		var out bytes.Buffer
		k := newTask(t, way, "echo $$; ls /proc/self/fd | wc -l")
		k.Stdout, k.Limits = &out, Limits{Cgroup: procs}
		if ending, err := k.Run(t.Context()); err != nil || ending.ExitCode != 0 {
			t.Fatalf("got %+v, %v", ending, err)
		}
		put, err := os.ReadFile(procs.Name())
		if pid, fds, _ := strings.Cut(out.String(), "\n"); err != nil || string(put) != pid || fds != "4\n" {
			t.Errorf("cgroup.procs holds %q, %v; the program had pid %s and %s descriptors", put, err, pid, fds)
		}
	})
}

func TestTaskLimitFailurePreventsProgram(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(t *testing.T, way Containment) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		defer full.Close()
		k := newTask(t, way, "echo ran > ran")
		k.Limits = Limits{Cgroup: full}
		_, err = k.Run(t.Context())
		var never *NotStartedError
		if !errors.As(err, &never) || !strings.Contains(err.Error(), "cgroup") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(filepath.Join(k.Dir.Name(), "ran")); err == nil {
			t.Error("the program ran without its limit")
		}
	})
}

func TestTaskProcessLimitCountsOnlySandbox(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Parallel()
		rerunAsNobody(t)
		return
	}
	// Processes of the same user outside the sandbox do not count.
	for range 20 {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	const most = 10
	var out, errs bytes.Buffer
	k := newTask(t, PIDNamespace, `n=0; while [ $n -lt 40 ]; do n=$((n+1)); echo $n > tried; sleep 1000 & done`)
	k.Stdout, k.Stderr, k.Limits = &out, &errs, Limits{Processes: most}
	ending, err := k.Run(t.Context())
	if err != nil || ending.ExitCode == 0 || !strings.Contains(errs.String(), "fork") {
		t.Fatalf("got %+v, %v: %s", ending, err, &errs)
	}
	tried, err := os.ReadFile(filepath.Join(k.Dir.Name(), "tried"))
	must(t, err)
	// The shell and all started children but the last count. Supervisor threads started later use up a few of the limit.
	if got, err := strconv.Atoi(strings.TrimSpace(string(tried))); err != nil || got > most || got < most-4 {
		t.Errorf("fork failed at child %s: %s", tried, &errs)
	}

	k = newTask(t, Subreaper, "exit 0")
	k.Limits = Limits{Processes: most}
	var never *NotStartedError
	if _, err := k.Run(t.Context()); !errors.As(err, &never) {
		t.Errorf("without a user namespace of its own: %v", err)
	}
}

// rerunAsNobody runs the test again as the user nobody.
func rerunAsNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	dir := t.TempDir()
	for p := dir; p != filepath.Clean(os.TempDir()); p = filepath.Dir(p) {
		must(t, os.Chmod(p, 0o755))
	}
	exe := filepath.Join(dir, "test")
	own, err := os.Executable()
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), "cp", own, exe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o700))
	must(t, os.Chown(tmp, nobody, nobody))
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestNamespaceTasksHaveOwnLimits(t *testing.T) {
	t.Parallel()
	r, label := startNamespace(t)
	bound := func(how string, nice int) {
		t.Helper()
		k := newTask(t, PIDNamespace, "echo $$; nice; ulimit -f")
		procs, err := os.Create(filepath.Join(k.Dir.Name(), "cgroup.procs"))
		must(t, err)
		defer procs.Close()
		var out bytes.Buffer
		k.Stdout, k.Limits = &out, Limits{Nice: nice, FileSize: 1 << 20, Cgroup: procs}
		ending, err := r.Run(t.Context(), k)
		put, readErr := os.ReadFile(procs.Name())
		must(t, readErr)
		if want := string(put) + "\n" + strconv.Itoa(max(nice, inheritedNice(t))) + "\n2048\n"; err != nil || ending.ExitCode != 0 || out.String() != want {
			t.Errorf("%s: %+v, %v: output %q, want %q", how, ending, err, &out, want)
		}
		k.Argv = []string{"/no/such/program"}
		_, err = r.Run(t.Context(), k)
		var cannot *CannotRunError
		if !errors.As(err, &cannot) || cannot.Code != 127 {
			t.Errorf("%s: missing program: %v", how, err)
		}
	}
	bound("first task", 3)
	runBeside(t, label)
	bound("second task", 5)
	bound("second task, less nice", 4)
}

// TestCommandLimits: a command and a coprocess have their limits, and write no core dump.
func TestCommandLimits(t *testing.T) {
	t.Parallel()
	const script = `until test "$(ulimit -t)" = 7; do :; done; read line; ulimit -Ht; ulimit -d; ulimit -f; ulimit -Sc`
	const want = "8\n262144\n128\n0\n" // in the units of sh, in which a core dump of one byte is none
	c := Command{
		Argv: []string{"sh", "-c", script}, Stdin: strings.NewReader("go\n"),
		Limits: Limits{CPU: 6*time.Second + time.Millisecond, Data: 256 << 20, FileSize: 64 << 10},
	}
	res, err := Run(t.Context(), c)
	if err != nil || string(res.Stdout) != want || res.ExitCode != 0 || res.MaxRSS == 0 {
		t.Errorf("Run: %q, %+v, %v", res.Stdout, res, err)
	}
	c.Stdin = nil
	talk, err := StartCoprocess(t.Context(), c)
	must(t, err)
	must(t, talk.WriteString("go\n"))
	out, err := io.ReadAll(talk.Stdout)
	if err != nil || string(out) != want {
		t.Errorf("Coprocess: %q, %v", out, err)
	}
	if res, err := talk.Close(); err != nil || res.ExitCode != 0 || res.MaxRSS == 0 {
		t.Errorf("Coprocess: %+v, %v", res, err)
	}
}

func TestResultTellsExceededLimit(t *testing.T) {
	t.Parallel()
	type verdict struct{ cpu, data, file bool }
	for name, test := range map[string]struct {
		script string
		limits Limits
		want   verdict
	}{
		"processor time": {"while :; do :; done", Limits{CPU: time.Second, Data: 1 << 30}, verdict{cpu: true}},
		"memory":         {"exec tail -c 1G", Limits{CPU: time.Minute, Data: 64 << 20}, verdict{data: true}},
		"size of a file": {"until test \"$(ulimit -f)\" != unlimited; do :; done; exec dd if=/dev/zero of=\"$1\"/file bs=1k count=100", Limits{FileSize: 64 << 10}, verdict{file: true}},
		"success":        {"exit 0", Limits{CPU: time.Second, Data: 64 << 20, FileSize: 1}, verdict{}},
		"failure":        {"exit 1", Limits{CPU: time.Second, Data: 64 << 20, FileSize: 1}, verdict{}},
		"ignored signal": {"trap '' XCPU; while :; do :; done", Limits{CPU: 2 * time.Second, Data: 1 << 30}, verdict{cpu: true}},
		"other kill":     {"kill -KILL $$", Limits{CPU: time.Minute, Data: 64 << 20}, verdict{}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			res, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", test.script, "sh", t.TempDir()}, Stdin: endlessReader{}, Stdout: io.Discard, Limits: test.limits})
			got := verdict{res.CPUExceeded(test.limits), res.DataExceeded(test.limits), res.FileSizeExceeded(test.limits)}
			if err != nil || got != test.want {
				t.Errorf("got %+v, exit code %d, %s, %d bytes, %v", got, res.ExitCode, res.CPUTime, res.MaxRSS, err)
			}
		})
	}
}

// endlessReader is a reader of zero bytes without end.
type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }
