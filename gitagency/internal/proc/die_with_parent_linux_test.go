package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"golang.org/x/sys/unix"
)

// parentArg makes the test binary run a shell script that dies with it, print "ended" and wait for its end.
const parentArg = "parent-of-a-program"

func init() { // before the tests: this process runs none
	if len(os.Args) == 3 && os.Args[1] == parentArg {
		res, err := Run(context.Background(), Command{Argv: []string{"sh", "-c", os.Args[2]}, DieWithParent: true})
		fmt.Println("ended", res.ExitCode, err)
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns when the test ends
		os.Exit(0)
	}
}

// startParent starts a process that runs a script with DieWithParent.
func startParent(t *testing.T, script string) (parent *exec.Cmd, stdout *os.File) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	stdout, write, err := os.Pipe()
	must(t, err)
	parent = exec.CommandContext(t.Context(), self, parentArg, script)
	parent.Stdout = write
	stdin, err := parent.StdinPipe()
	must(t, err)
	must(t, parent.Start())
	t.Cleanup(func() { _, _ = stdin.Close(), stdout.Close() })
	must(t, write.Close())
	return parent, stdout
}

func TestDieWithParentKillsProcessGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	parent, _ := startParent(t, fmt.Sprintf(`sh -c 'trap "" HUP TERM; echo $$ >%[1]s; sleep 600' & sh -c 'echo $$ >%[2]s; sleep 600' & wait`, first, second))
	pids := []int{waitForPID(t, first), waitForPID(t, second)}
	waitForParentPipe(t, parent.Process.Pid)
	must(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	for _, pid := range pids {
		if !endsInTime(pid) {
			t.Errorf("process %d outlives the parent of its group", pid)
		}
	}
}

// TestDieWithParentSparesDaemon checks that a process that a successful program leaves may outlive the parent, as a
// credential cache of git must.
func TestDieWithParentSparesDaemon(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "daemon")
	parent, stdout := startParent(t, fmt.Sprintf(`sh -c 'echo $$ >%s; exec sleep 600' </dev/null >/dev/null 2>&1 &`, file))
	line := make([]byte, 100)
	n, err := stdout.Read(line)
	must(t, err)
	if got := string(line[:n]); got != "ended 0 <nil>\n" {
		t.Fatalf("the program %s", got)
	}
	pid := waitForPID(t, file)
	defer func() {
		daemon, err := os.FindProcess(pid)
		must(t, err)
		must(t, daemon.Kill()) // fails if it has ended
	}()
	must(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed; the kernel has sent every signal before
	if s, there := procfs.ReadStat(pid); !there || s.IsDead() {
		t.Error("the daemon was killed with the parent")
	}
}

// waitForPID waits until a file holds a process id.
func waitForPID(t *testing.T, file string) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		data, _ := os.ReadFile(file) // not there yet
		if text, whole := strings.CutSuffix(string(data), "\n"); whole {
			pid, err := strconv.Atoi(text)
			must(t, err)
			return pid
		}
	}
	t.Fatalf("%s was not written", file)
	return 0
}

// waitForParentPipe waits until a process has a descriptor for which the kernel sends signals: the program runs before its
// process group is known, and the parent may lose the processor in between.
func waitForParentPipe(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		must(t, err)
		for _, path := range infos {
			info, _ := os.ReadFile(path) // the descriptor may be closed by now
			_, rest, _ := strings.Cut(string(info), "flags:\t")
			line, _, _ := strings.Cut(rest, "\n")
			if flags, err := strconv.ParseInt(line, 8, 64); err == nil && flags&unix.O_ASYNC != 0 {
				return
			}
		}
	}
	t.Fatal("no descriptor has O_ASYNC")
}

// endsInTime waits for the end of a process, at most a minute.
func endsInTime(pid int) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if s, there := procfs.ReadStat(pid); !there || s.IsDead() {
			return true
		}
	}
	return false
}

// The thread that starts a restricted program ends at once, and with it a program that dies with its parent.
func TestDieWithParentIsRefusedWhereItCannotWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Command{Argv: []string{"touch", "file"}, Dir: dir, DieWithParent: true}
	restricted := c
	restricted.Restrict = func() error { return nil }
	for want, start := range map[string]func() error{
		"a program with Restrict cannot have DieWithParent": func() error { _, err := Run(t.Context(), restricted); return err },
		"a coprocess cannot have DieWithParent": func() error {
			talk, err := StartCoprocess(t.Context(), c)
			if err == nil {
				_, err = talk.Close()
			}
			return err
		},
	} {
		if err := start(); !errors.As(err, new(*NotStartedError)) || err.Error() != want {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "file")); err == nil {
		t.Error("a program was started")
	}
}
