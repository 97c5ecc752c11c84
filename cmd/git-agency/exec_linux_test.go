package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// containment is a way in which exec contains the processes of a command.
type containment struct {
	wrapper     []string // command prefix that runs the tool without some kernel features
	isolation   string
	containedBy string // expected ContainedBy in the output
	occupied    bool   // a second command runs in the same sandbox
}

// containments are all ways: behind walls, alone or beside a second command, and without walls, with a PID
// namespace or, where the kernel grants no namespaces, with a subreaper.
var containments = map[string]containment{
	"walls":         {isolation: "os", containedBy: "pid-namespace"},
	"shared-walls":  {isolation: "os", containedBy: "pid-namespace", occupied: true},
	"pid-namespace": {isolation: "none", containedBy: "pid-namespace"},
	"subreaper": {isolation: "none", containedBy: "subreaper", wrapper: []string{
		"unshare", "--user", "--map-root-user", "sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && echo 0 >/proc/sys/user/max_pid_namespaces && exec "$@"`, "sh",
	}},
}

// execLab is a lab with a sandbox for one containment.
type execLab struct {
	*lab
	containment
	id, tree string
	number   int // of the containment, in forEachContainment
}

func newExecLab(t *testing.T, w containment) *execLab {
	t.Helper()
	l := &execLab{lab: newLab(t), containment: w}
	l.agency("worktree", "create", "wt")
	l.id = l.agency("start", "wt", "--isolation", w.isolation)
	l.tree = l.agency("path", l.id)
	if w.occupied {
		l.startSecondCommand()
	}
	return l
}

// startSecondCommand starts a command that runs in the sandbox until the end of the test, and checks then that
// it was not killed.
func (l *execLab) startSecondCommand() {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(l.bin, "git-agency"), "exec", l.id, "--stdin", "--", "sh", "-c", "touch occupied; read line; exit 77")
	cmd.Dir, cmd.Env = l.repo, l.env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if !waitForFile(filepath.Join(l.tree, "occupied")) {
		l.t.Fatal("the command does not start")
	}
	l.t.Cleanup(func() {
		_ = stdin.Close() // the command reads until then
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 77 {
			l.t.Errorf("the second command ended with %d, want 77", cmd.ProcessState.ExitCode())
		}
	})
}

// forEachContainment runs test as a subtest for each containment.
func forEachContainment(t *testing.T, test func(l *execLab)) {
	t.Helper()
	for number, name := range slices.Sorted(maps.Keys(containments)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newExecLab(t, containments[name])
			l.number = number
			test(l)
		})
	}
}

// withAndWithoutWalls runs test behind walls and without them, for behavior that does not depend on containment.
func withAndWithoutWalls(t *testing.T, test func(l *execLab)) {
	t.Helper()
	for _, name := range []string{"walls", "pid-namespace"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newExecLab(t, containments[name]))
		})
	}
}

// execCommand prepares "git-agency exec <id> <args>".
func (l *execLab) execCommand(args ...string) *exec.Cmd {
	argv := append(append([]string{}, l.wrapper...), filepath.Join(l.bin, "git-agency"), "exec", l.id)
	argv = append(argv, args...)
	cmd := exec.CommandContext(l.t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.repo, l.env
	return cmd
}

// newMark returns a unique argument by which processesWithMark finds the processes of a test.
func (l *execLab) newMark() string {
	return fmt.Sprintf("1000.%d%09d", os.Getpid(), time.Now().UnixNano()%1e9)
}

// processesWithMark returns the command lines that contain mark.
func processesWithMark(t *testing.T, mark string) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(mark)) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}

// TestExecEndsAllProcesses checks for ill-behaved commands that exec ends, no process is left, and the next exec
// works.
func TestExecEndsAllProcesses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		script string // $1 is the mark
		flags  []string
		code   int
	}{
		"ignores SIGTERM":              {`trap "" TERM; sleep $1; sleep $1`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"ignores everything it can":    {`trap "" HUP INT QUIT TERM USR1 USR2 ALRM PIPE; sleep $1; sleep $1`, []string{"--timeout", "100ms", "--grace", "0"}, 124},
		"forks for ever":               {`while :; do sleep $1 & done`, []string{"--timeout", "200ms", "--grace", "50ms"}, 124},
		"forks a tree":                 {`f() { test $1 -gt 7 || { f $(($1 + 1)) & f $(($1 + 1)) & }; sleep $mark; }; mark=$1; f 0`, []string{"--timeout", "20ms", "--grace", "0"}, 124},
		"forks and exits repeatedly":   {`perl -e '$SIG{TERM} = "IGNORE"; while (1) { exit if fork }' $1`, []string{"--grace", "50ms"}, 0},
		"becomes a daemon":             {`(setsid sh -c 'cd /; sleep $0; sleep $0' $1 <&- >&- 2>&- &) &`, []string{"--grace", "50ms"}, 0},
		"daemon that ignores SIGTERM":  {`(setsid sh -c 'trap "" TERM HUP; touch up; sleep $0; sleep $0' $1 <&- >&- 2>&- &) & while ! test -e up; do :; done`, []string{"--grace", "50ms"}, 0},
		"closes its descriptors":       {`exec <&- >&- 2>&-; sleep $1`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"stops itself":                 {`sleep $1 & kill -STOP $$`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"leaves the terminal's group":  {`setsid setsid sleep $1 & exit 5`, []string{"--grace", "50ms"}, 5},
		"is killed with children left": {`setsid sleep $1 & kill -9 $$`, []string{"--grace", "50ms"}, 137},
	}
	forEachContainment(t, func(l *execLab) {
		for i, name := range slices.Sorted(maps.Keys(cases)) {
			if !isRotated(i, l.number) {
				continue
			}
			c := cases[name]
			l.t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				mark := l.newMark()
				cmd := l.execCommand(append(c.flags, "--json", "--", "sh", "-c", c.script, "sh", mark)...)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				var res execOutput
				if err := json.Unmarshal(out, &res); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if got := cmd.ProcessState.ExitCode(); got != c.code || res.ExitCode != c.code || res.ContainedBy != l.containedBy {
					t.Errorf("ended with %d, %+v", got, res)
				}
				if left := processesWithMark(t, mark); len(left) > 0 {
					t.Errorf("processes are left: %q", left)
				}
				if out, err := l.execCommand("--", "echo", "next").Output(); err != nil || string(out) != "next\n" {
					t.Errorf("the next exec: %q, %v", out, err)
				}
			})
		}
	})
}

// startDaemonCommand starts a command with a daemon child that ignores SIGHUP, SIGINT and SIGTERM, and waits
// until both run.
func (l *execLab) startDaemonCommand(mark string, flags ...string) *exec.Cmd {
	l.t.Helper()
	script := `(setsid sh -c 'trap "" HUP INT TERM; echo daemon >begun; sleep $0; sleep $0' $1 &) &
trap "" HUP; while ! test -s begun; do :; done; touch running; sleep $1`
	cmd := l.execCommand(append(flags, "--", "sh", "-c", script, "sh", mark)...)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if !waitForFile(filepath.Join(l.tree, "running")) {
		l.t.Fatal("the command does not start")
	}
	return cmd
}

func TestKilledExecEndsAllProcesses(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(l *execLab) {
		mark := l.newMark()
		cmd := l.startDaemonCommand(mark, "--grace", "1h")
		if err := cmd.Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // always an error: it was killed
		if !waitUntil(func() bool { return len(processesWithMark(l.t, mark)) == 0 }) {
			l.t.Errorf("processes are left: %q", processesWithMark(l.t, mark))
		}
		if l.occupied {
			return
		}
		// The supervisor has the directory of the invocation in its arguments and ends after its programs.
		if supervisor := filepath.Join("invocations", l.id); !waitUntil(func() bool { return len(processesWithMark(l.t, supervisor)) == 0 }) {
			l.t.Errorf("the supervisor is left: %q", processesWithMark(l.t, supervisor))
		}
		// Discard finds no running command.
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 || strings.Contains(o.stderr, "still ran") {
			l.t.Errorf("got %+v", o)
		}
	})
}

func TestSignalledExecEndsAllProcesses(t *testing.T) {
	t.Parallel()
	forEachContainment(t, func(l *execLab) {
		for i, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			if !isRotated(i, l.number) {
				continue
			}
			mark := l.newMark()
			cmd := l.startDaemonCommand(mark, "--grace", "50ms")
			if err := cmd.Process.Signal(sig); err != nil {
				l.t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code is checked below
			if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) {
				l.t.Errorf("%v: ended with %d", sig, got)
			}
			if left := processesWithMark(l.t, mark); len(left) > 0 {
				l.t.Errorf("%v: processes are left: %q", sig, left)
			}
			for _, name := range []string{"running", "begun"} {
				if err := os.Remove(filepath.Join(l.tree, name)); err != nil {
					l.t.Fatal(err)
				}
			}
		}
	})
}

// TestExecTruncatesCapturedOutput captures 1 GiB of output, of which the result keeps the beginning, within
// 300 MiB of memory.
func TestExecTruncatesCapturedOutput(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	size := 1 << 30
	if testing.Short() {
		size = 400 << 20 // more than the limit on memory below
	}
	cmd := l.execCommand("--json", "--", "sh", "-c", "yes 0123456 | head -c $0; echo done >&2", strconv.Itoa(size))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var res execOutput
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatal(err)
	}
	if !res.Truncated || len(res.Stdout) != gitagency.CaptureLimit || res.Stderr != "done\n" || res.Stdout[:8] != "0123456\n" {
		t.Errorf("got %d bytes, truncated: %v, and %q", len(res.Stdout), res.Truncated, res.Stderr)
	}
	if peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; peak > 300<<10 {
		t.Errorf("peak memory is %d MiB", peak>>10)
	}
}

// TestExecStreamsUntilSIGPIPE closes the reading end of streamed output. The program writes to the pipe itself,
// so it must get SIGPIPE.
func TestExecStreamsUntilSIGPIPE(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.execCommand("--", "yes")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			l.t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		if _, err := io.ReadFull(stdout, make([]byte, 4)); err != nil {
			l.t.Error(err)
		}
		if err := stdout.Close(); err != nil {
			l.t.Error(err)
		}
		_ = cmd.Wait() // the exit code is checked below
		if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGPIPE) {
			l.t.Errorf("ended with %d", got)
		}
	})
}

func TestConcurrentExec(t *testing.T) {
	t.Parallel()
	many := 50
	if testing.Short() {
		many = 10
	}
	for name, c := range map[string]struct {
		way     string
		oneEach bool
	}{
		"in one sandbox":               {"walls", false},
		"in a sandbox each":            {"walls", true},
		"in one sandbox without walls": {"pid-namespace", false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := newExecLab(t, containments[c.way])
			ids, trees := []string{l.id}, []string{l.tree}
			for c.oneEach && len(ids) < many {
				id := l.agency("start", "wt", "--isolation", l.isolation)
				ids, trees = append(ids, id), append(trees, l.agency("path", id))
			}
			// All commands run before any of them ends.
			var all sync.WaitGroup
			for i := range many {
				id := ids[i%len(ids)]
				all.Go(func() {
					script := fmt.Sprintf(`echo %d >file-%d; touch up-%d; while ! test -e gate; do sleep 0.05; done; echo out %d; exit %d`, i, i, i, i, i)
					o := l.try(nil, "git-agency", "exec", id, "--", "sh", "-c", script)
					if o.code != i || o.stdout != fmt.Sprintf("out %d\n", i) || o.stderr != "" {
						t.Errorf("%d: got %+v", i, o)
					}
				})
			}
			for i := range many {
				if !waitForFile(filepath.Join(trees[i%len(trees)], fmt.Sprintf("up-%d", i))) {
					t.Errorf("command %d does not run", i)
					break // waiting for each of the others would take too long
				}
			}
			for _, tree := range trees {
				l.write(filepath.Join(tree, "gate"), "")
			}
			all.Wait()
			lines := 0
			for i := range many {
				if l.read(filepath.Join(trees[i%len(trees)], fmt.Sprintf("file-%d", i))) != fmt.Sprintf("%d\n", i) {
					t.Errorf("the file of command %d is missing", i)
				}
			}
			histories, err := filepath.Glob(filepath.Join(l.data, "repos", "*", "invocations", "*", "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range histories {
				for line := range strings.Lines(l.read(h)) {
					if lines++; !json.Valid([]byte(line)) {
						t.Errorf("events.jsonl has the invalid line %q", line)
					}
				}
			}
			if lines != many {
				t.Errorf("events.jsonl has %d lines, want %d", lines, many)
			}
		})
	}
}

// TestKilledGitEndsExec kills the git process of "git agency exec", not the tool. The command must end too.
func TestKilledGitEndsExec(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.newMark()
		cmd := exec.CommandContext(l.t.Context(), "git", "agency", "exec", l.id, "--", "sh", "-c", `touch running; sleep $1`, "sh", mark)
		cmd.Dir, cmd.Env = l.repo, l.env
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		if !waitForFile(filepath.Join(l.tree, "running")) {
			l.t.Fatal("the command does not start")
		}
		if err := cmd.Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // always an error: it was killed
		if !waitUntil(func() bool { return len(processesWithMark(l.t, mark)) == 0 }) {
			l.t.Errorf("processes are left: %q", processesWithMark(l.t, mark))
		}
	})
}

func TestInterruptedExecReturnsPartialOutput(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.execCommand("--json", "--", "sh", "-c", "echo partial; touch running; exec sleep 1000")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		if !waitForFile(filepath.Join(l.tree, "running")) {
			l.t.Fatal("the command does not start")
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code is checked below
		var res execOutput
		if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
			l.t.Fatalf("%v: %q", err, &stdout)
		}
		if cmd.ProcessState.ExitCode() != 143 || res.ExitCode != 143 || res.Stdout != "partial\n" || res.Error == "" {
			l.t.Errorf("ended with %d: %+v", cmd.ProcessState.ExitCode(), res)
		}
	})
}

func TestSecondInterruptKillsAtOnce(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.execCommand("--grace", "1h", "--", "sh", "-c", `trap "touch told" TERM; touch running; while :; do sleep 0.01; done`)
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		for _, c := range []struct {
			file   string
			signal syscall.Signal
		}{{"running", syscall.SIGINT}, {"told", syscall.SIGTERM}} {
			if !waitForFile(filepath.Join(l.tree, c.file)) {
				l.t.Fatalf("no %s", c.file)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				l.t.Fatal(err)
			}
		}
		_ = cmd.Wait() // the exit code is checked below
		if got := cmd.ProcessState.ExitCode(); got != 130 {
			l.t.Errorf("ended with %d", got)
		}
	})
}

// waitRecordClosed waits until the tool has closed the directory of the invocation, which it holds open until it
// knows that its command runs.
func (l *execLab) waitRecordClosed(pid int) {
	l.t.Helper()
	home := filepath.Join(l.repoData(), "invocations", l.id)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(open) == 0 {
			l.t.Fatalf("the tool has exited: %v", err)
		}
		if !slices.ContainsFunc(open, func(fd string) bool { at, err := os.Readlink(fd); return err == nil && at == home }) {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the tool does not close the directory of the invocation")
		}
	}
}

// TestDiscardWhileExecIsStopped stops the tool with SIGSTOP, as Ctrl-Z does. Discard must still end its command
// and must not wait for the tool.
func TestDiscardWhileExecIsStopped(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.newMark()
		cmd := l.startDaemonCommand(mark, "--grace", "50ms")
		l.waitRecordClosed(cmd.Process.Pid)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			l.t.Fatal(err)
		}
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 || !strings.Contains(o.stderr, "ended 1 command that still ran") {
			l.t.Errorf("got %+v", o)
		}
		if left := processesWithMark(l.t, mark); len(left) > 1 { // the stopped tool itself has the mark
			l.t.Errorf("processes are left: %q", left)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code is checked below
		if got := cmd.ProcessState.ExitCode(); got != 143 {
			l.t.Errorf("ended with %d", got)
		}
	})
}

// TestRefusedDiscardEndsNoCommand checks that discard finds its reasons to refuse before it ends running commands.
func TestRefusedDiscardEndsNoCommand(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.newMark()
		cmd := l.startDaemonCommand(mark, "--grace", "50ms")
		l.must("git", "init", "-q", filepath.Join(l.tree, "inner"))
		l.must("git", "config", "--global", "agency.trashLimit", "1k")
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 1 || !strings.Contains(o.stderr, "inner") {
			l.t.Errorf("got %+v", o)
		}
		if len(processesWithMark(l.t, mark)) < 3 {
			l.t.Error("the command was ended")
		}
		// A discard by a command in the sandbox is refused too; behind walls it sees no records.
		o := l.try(nil, "git-agency", "exec", l.id, "--", "git-agency", "discard", l.id)
		want, code := "cannot discard it", 1
		if l.isolation == "os" {
			want, code = "behind the walls of sandbox", 5
		}
		if o.code != code || !strings.Contains(o.stderr, want) {
			l.t.Errorf("got %+v", o)
		}
		if len(processesWithMark(l.t, mark)) < 3 {
			l.t.Error("the command was ended")
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // always an error: it was terminated
	})
}

// TestDiscardBlocksNewCommands starts commands in a loop. Discard must refuse new ones before it waits for the
// running ones, or it would never end.
func TestDiscardBlocksNewCommands(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for {
					o := l.try(nil, "git-agency", "exec", l.id, "--grace", "1s", "--", "sh", "-c", "trap '' TERM; touch running; sleep 0.2; sleep 0.2")
					if o.code == 1 && strings.Contains(o.stderr, "was discarded") {
						return
					}
				}
			})
		}
		if !waitForFile(filepath.Join(l.tree, "running")) {
			l.t.Fatal("no command starts")
		}
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 {
			l.t.Errorf("got %+v", o)
		}
		all.Wait()
	})
}

// TestDoctorFixEndsRunningCommands checks that doctor --fix ends the commands of a sandbox before it discards it.
func TestDoctorFixEndsRunningCommands(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.newMark()
		cmd := l.startDaemonCommand(mark, "--grace", "50ms")
		l.write(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(l.tree))), "invocations", l.id, "meta.json"), "{")
		if o := l.try(nil, "git-agency", "doctor", "--fix", l.id); o.code != 0 || !strings.Contains(o.stderr, "were ended: 1") {
			l.t.Errorf("got %+v", o)
		}
		_ = cmd.Wait() // always an error: it was terminated
		if left := processesWithMark(l.t, mark); len(left) > 0 {
			l.t.Errorf("processes are left: %q", left)
		}
		if got := l.git("show", "refs/agency/trash/"+l.id+":begun"); got != "daemon" {
			l.t.Errorf("the trash ref has %q for the file of the command", got)
		}
	})
}

func TestSubreaperAtProcessLimit(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 { // root is exempt from RLIMIT_NPROC
		rerunAsNobody(t, t.Name())
		return
	}
	l := newExecLab(t, containments["subreaper"])
	mark := l.newMark()
	cmd := l.execCommand("--timeout", "1s", "--grace", "1s", "--", "perl", "-e", `
$SIG{TERM} = "IGNORE";
while (1) {
	my $pid = fork;
	if (!defined $pid) { select undef, undef, undef, 0.001 } # no more to be had, but perhaps soon
	elsif ($pid == 0) { $SIG{TERM} = "IGNORE"; exec "sleep", $ARGV[0] }
}`, mark)
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -u 50; exec "$@"`, "sh"}, cmd.Args...)
	_ = cmd.Run() // its code says how
	if got := cmd.ProcessState.ExitCode(); got != 124 {
		t.Errorf("ended with %d", got)
	}
	if left := processesWithMark(t, mark); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// TestExecHonorsSIGINTAndIgnoredSIGHUP starts the tool with one signal ignored. A shell starts background jobs
// with SIGINT ignored, but an explicit SIGINT must still end the command; an ignored SIGHUP, as under nohup,
// must stay ignored.
func TestExecHonorsSIGINTAndIgnoredSIGHUP(t *testing.T) {
	t.Parallel()
	for ignored, want := range map[string]int{"INT": 130, "HUP": 3} {
		l := newExecLab(t, containments["walls"])
		cmd := l.execCommand("--", "sh", "-c", `touch running; while ! test -e on; do sleep 0.01; done; exit 3`)
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" ` + ignored + `; exec "$@"`, "sh"}, cmd.Args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !waitForFile(filepath.Join(l.tree, "running")) {
			t.Fatal("the command does not start")
		}
		sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP}[ignored]
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if ignored == "HUP" {
			l.write(filepath.Join(l.tree, "on"), "")
		}
		_ = cmd.Wait() // the exit code is checked below
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: ended with %d", ignored, got)
		}
	}
}
