package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// way is one of containing commands.
type way struct {
	machine   []string // runs the tool on a machine that is not like this one
	isolation string
	contained string // what the tool says of it
	beside    bool   // another command runs in the same sandbox
}

// ways are all there are: behind walls, alone or beside another command, and without walls, on this machine
// and on one that gives out no namespaces.
var ways = map[string]way{
	"walls":         {isolation: "os", contained: "pid-namespace"},
	"shared-walls":  {isolation: "os", contained: "pid-namespace", beside: true},
	"pid-namespace": {isolation: "none", contained: "pid-namespace"},
	"subreaper": {isolation: "none", contained: "subreaper", machine: []string{
		"unshare", "--user", "--map-root-user", "sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && echo 0 >/proc/sys/user/max_pid_namespaces && exec "$@"`, "sh",
	}},
}

// execLab is a lab with a sandbox, in which commands are contained in one of the ways.
type execLab struct {
	*lab
	way
	id, tree string
}

func newExecLab(t *testing.T, w way) *execLab {
	t.Helper()
	l := &execLab{lab: newLab(t), way: w}
	l.agency("worktree", "create", "wt")
	l.id = l.agency("start", "wt", "--isolation", w.isolation)
	l.tree = l.agency("path", l.id)
	if w.beside {
		l.occupy()
	}
	return l
}

// occupy has a command run in the sandbox until the end of the test, when it must still be there.
func (l *execLab) occupy() {
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
	if !waitFor(filepath.Join(l.tree, "occupied")) {
		l.t.Fatal("it does not begin")
	}
	l.t.Cleanup(func() {
		_ = stdin.Close() // which is what it waits for
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 77 {
			l.t.Errorf("what ran beside ended with %d", cmd.ProcessState.ExitCode())
		}
	})
}

func eachWay(t *testing.T, test func(l *execLab)) {
	t.Helper()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newExecLab(t, w))
		})
	}
}

// withAndWithoutWalls is for what any machine does alike.
func withAndWithoutWalls(t *testing.T, test func(l *execLab)) {
	t.Helper()
	for _, name := range []string{"walls", "pid-namespace"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newExecLab(t, ways[name]))
		})
	}
}

// exec prepares "git-agency exec <id> <args>".
func (l *execLab) exec(args ...string) *exec.Cmd {
	argv := append(append([]string{}, l.machine...), filepath.Join(l.bin, "git-agency"), "exec", l.id)
	argv = append(argv, args...)
	cmd := exec.CommandContext(l.t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.repo, l.env
	return cmd
}

// mark is a word by which processes of a test are known, wherever they went.
func (l *execLab) mark() string {
	return fmt.Sprintf("1000.%d%09d", os.Getpid(), time.Now().UnixNano()%1e9)
}

// marked lists the processes that have a word in their command line.
func marked(t *testing.T, mark string) []string {
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

// Whatever a command does, exec ends, nothing is left of it, and the next one works.
func TestExecOutlivesEveryCommandAndNoCommandOutlivesExec(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string // $1 is a mark
		flags  []string
		code   int
	}{
		"ignores SIGTERM":              {`trap "" TERM; sleep $1; sleep $1`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"ignores everything it can":    {`trap "" HUP INT QUIT TERM USR1 USR2 ALRM PIPE; sleep $1; sleep $1`, []string{"--timeout", "100ms", "--grace", "0"}, 124},
		"forks for ever":               {`while :; do sleep $1 & done`, []string{"--timeout", "200ms", "--grace", "50ms"}, 124},
		"multiplies":                   {`f() { test $1 -gt 7 || { f $(($1 + 1)) & f $(($1 + 1)) & }; sleep $mark; }; mark=$1; f 0`, []string{"--timeout", "20ms", "--grace", "0"}, 124},
		"runs away":                    {`perl -e '$SIG{TERM} = "IGNORE"; while (1) { exit if fork }' $1`, []string{"--grace", "50ms"}, 0},
		"becomes a daemon":             {`(setsid sh -c 'cd /; sleep $0; sleep $0' $1 <&- >&- 2>&- &) &`, []string{"--grace", "50ms"}, 0},
		"daemon that ignores SIGTERM":  {`(setsid sh -c 'trap "" TERM HUP; touch up; sleep $0; sleep $0' $1 <&- >&- 2>&- &) & while ! test -e up; do :; done`, []string{"--grace", "50ms"}, 0},
		"closes its descriptors":       {`exec <&- >&- 2>&-; sleep $1`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"stops itself":                 {`sleep $1 & kill -STOP $$`, []string{"--timeout", "100ms", "--grace", "50ms"}, 124},
		"leaves the terminal's group":  {`setsid setsid sleep $1 & exit 5`, []string{"--grace", "50ms"}, 5},
		"is killed with children left": {`setsid sleep $1 & kill -9 $$`, []string{"--grace", "50ms"}, 137},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(l *execLab) {
				mark := l.mark()
				cmd := l.exec(append(c.flags, "--json", "--", "sh", "-c", c.script, "sh", mark)...)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					l.t.Fatal(err)
				}
				var res execOutput
				if err := json.Unmarshal(out, &res); err != nil {
					l.t.Fatalf("%v: %s", err, out)
				}
				if got := cmd.ProcessState.ExitCode(); got != c.code || res.ExitCode != c.code || res.ContainedBy != l.contained {
					l.t.Errorf("ended with %d, %+v", got, res)
				}
				if left := marked(l.t, mark); len(left) > 0 {
					l.t.Errorf("still there: %q", left)
				}
				if out, err := l.exec("--", "echo", "next").Output(); err != nil || string(out) != "next\n" {
					l.t.Errorf("the next: %q, %v", out, err)
				}
			})
		})
	}
}

// begin starts a command that says when it runs, with a daemon that ignores what it can.
func (l *execLab) begin(mark string, flags ...string) *exec.Cmd {
	l.t.Helper()
	script := `(setsid sh -c 'trap "" HUP INT TERM; echo daemon >begun; sleep $0; sleep $0' $1 &) &
trap "" HUP; while ! test -s begun; do :; done; touch running; sleep $1`
	cmd := l.exec(append(flags, "--", "sh", "-c", script, "sh", mark)...)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if !waitFor(filepath.Join(l.tree, "running")) {
		l.t.Fatal("it does not begin")
	}
	return cmd
}

func TestNothingOutlivesAToolThatIsKilled(t *testing.T) {
	t.Parallel()
	eachWay(t, func(l *execLab) {
		mark := l.mark()
		cmd := l.begin(mark, "--grace", "1h")
		if err := cmd.Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if !waitUntil(func() bool { return len(marked(l.t, mark)) == 0 }) {
			l.t.Errorf("still there: %q", marked(l.t, mark))
		}
		if l.beside {
			return
		}
		// The supervisor, which has the directory of the invocation among its arguments, ends after its programs.
		if supervisor := filepath.Join("invocations", l.id); !waitUntil(func() bool { return len(marked(l.t, supervisor)) == 0 }) {
			l.t.Errorf("still there: %q", marked(l.t, supervisor))
		}
		// Nobody is at work there any more.
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 || strings.Contains(o.stderr, "still ran") {
			l.t.Errorf("got %+v", o)
		}
	})
}

func TestASignalToTheToolEndsEverything(t *testing.T) {
	t.Parallel()
	eachWay(t, func(l *execLab) {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			mark := l.mark()
			cmd := l.begin(mark, "--grace", "50ms")
			if err := cmd.Process.Signal(sig); err != nil {
				l.t.Fatal(err)
			}
			_ = cmd.Wait() // its code says how
			if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) {
				l.t.Errorf("%v: ended with %d", sig, got)
			}
			if left := marked(l.t, mark); len(left) > 0 {
				l.t.Errorf("%v: still there: %q", sig, left)
			}
			for _, name := range []string{"running", "begun"} {
				if err := os.Remove(filepath.Join(l.tree, name)); err != nil {
					l.t.Fatal(err)
				}
			}
		}
	})
}

// A gigabyte, of which a result keeps a little, must not need a gigabyte of memory.
func TestExecKeepsTheBeginningOfALotOfOutput(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, ways["walls"])
	cmd := l.exec("--json", "--", "sh", "-c", "yes 0123456 | head -c 1073741824; echo done >&2")
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
		t.Errorf("it needed %d MiB", peak>>10)
	}
}

// Streamed output goes past the tool: it must not be what a program waits for.
func TestExecStreamsAndAReaderThatLeavesIsNoticed(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.exec("--", "yes")
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
		_ = cmd.Wait() // its code says how
		if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGPIPE) {
			l.t.Errorf("ended with %d", got)
		}
	})
}

func TestFiftyCommandsRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	many := 50
	if testing.Short() {
		many = 20
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
			l := newExecLab(t, ways[c.way])
			ids, trees := []string{l.id}, []string{l.tree}
			for c.oneEach && len(ids) < many {
				id := l.agency("start", "wt", "--isolation", l.isolation)
				ids, trees = append(ids, id), append(trees, l.agency("path", id))
			}
			// All of them run before any of them ends.
			var all sync.WaitGroup
			for i := range many {
				id := ids[i%len(ids)]
				all.Go(func() {
					script := fmt.Sprintf(`echo %d >file-%d; touch up-%d; while ! test -e gate; do sleep 0.05; done; echo out %d; exit %d`, i, i, i, i, i)
					o := l.try(nil, "git-agency", "exec", id, "--", "sh", "-c", script)
					if i > 0 && l.isolation == "os" { // one that fails behind walls hears of them
						o.stderr = regexp.MustCompile(`\Ahint: walls were up: .*\n\z`).ReplaceAllString(o.stderr, "")
					}
					if o.code != i || o.stdout != fmt.Sprintf("out %d\n", i) || o.stderr != "" {
						t.Errorf("%d: got %+v", i, o)
					}
				})
			}
			for i := range many {
				if !waitFor(filepath.Join(trees[i%len(trees)], fmt.Sprintf("up-%d", i))) {
					t.Errorf("%d does not run", i)
					break // it would be long until each of the others had its chance
				}
			}
			for _, tree := range trees {
				l.write(filepath.Join(tree, "gate"), "")
			}
			all.Wait()
			lines := 0
			for i := range many {
				if l.read(filepath.Join(trees[i%len(trees)], fmt.Sprintf("file-%d", i))) != fmt.Sprintf("%d\n", i) {
					t.Errorf("what %d wrote is not there", i)
				}
			}
			histories, err := filepath.Glob(filepath.Join(l.data, "repos", "*", "invocations", "*", "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range histories {
				for line := range strings.Lines(l.read(h)) {
					if lines++; !json.Valid([]byte(line)) {
						t.Errorf("the history has a line %q", line)
					}
				}
			}
			if lines != many {
				t.Errorf("the history has %d lines", lines)
			}
		})
	}
}

// Whoever starts "git agency exec" and loses patience kills the git in front of it.
func TestNothingOutlivesTheGitInFrontOfTheTool(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.mark()
		cmd := exec.CommandContext(l.t.Context(), "git", "agency", "exec", l.id, "--", "sh", "-c", `touch running; sleep $1`, "sh", mark)
		cmd.Dir, cmd.Env = l.repo, l.env
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		if !waitFor(filepath.Join(l.tree, "running")) {
			l.t.Fatal("it does not begin")
		}
		if err := cmd.Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if !waitUntil(func() bool { return len(marked(l.t, mark)) == 0 }) {
			l.t.Errorf("still there: %q", marked(l.t, mark))
		}
	})
}

func TestAnInterruptedCommandStillGivesWhatItWrote(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.exec("--json", "--", "sh", "-c", "echo partial; touch running; exec sleep 1000")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		if !waitFor(filepath.Join(l.tree, "running")) {
			l.t.Fatal("it does not begin")
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // its code says how
		var res execOutput
		if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
			l.t.Fatalf("%v: %q", err, &stdout)
		}
		if cmd.ProcessState.ExitCode() != 143 || res.ExitCode != 143 || res.Stdout != "partial\n" || res.Error == "" {
			l.t.Errorf("ended with %d: %+v", cmd.ProcessState.ExitCode(), res)
		}
	})
}

func TestASecondInterruptKillsAtOnce(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		cmd := l.exec("--grace", "1h", "--", "sh", "-c", `trap "touch told" TERM; touch running; while :; do sleep 0.01; done`)
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		for _, c := range []struct {
			file   string
			signal syscall.Signal
		}{{"running", syscall.SIGINT}, {"told", syscall.SIGTERM}} {
			if !waitFor(filepath.Join(l.tree, c.file)) {
				l.t.Fatalf("no %s", c.file)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				l.t.Fatal(err)
			}
		}
		_ = cmd.Wait() // its code says how
		if got := cmd.ProcessState.ExitCode(); got != 130 {
			l.t.Errorf("ended with %d", got)
		}
	})
}

// letsGo waits until a tool, which has heard that its command runs, leaves the sandbox to that.
func (l *execLab) letsGo(pid int) {
	l.t.Helper()
	home := filepath.Join(l.repoData(), "invocations", l.id)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(open) == 0 {
			l.t.Fatalf("the tool is gone: %v", err)
		}
		if !slices.ContainsFunc(open, func(fd string) bool { at, err := os.Readlink(fd); return err == nil && at == home }) {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the tool stays in the sandbox")
		}
	}
}

// A tool that is stopped, as by Ctrl-Z, keeps neither its command alive nor a discard waiting.
func TestAStoppedToolKeepsNobody(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.mark()
		cmd := l.begin(mark, "--grace", "50ms")
		l.letsGo(cmd.Process.Pid)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			l.t.Fatal(err)
		}
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 || !strings.Contains(o.stderr, "ended 1 command that still ran") {
			l.t.Errorf("got %+v", o)
		}
		if left := marked(l.t, mark); len(left) > 1 { // the tool itself
			l.t.Errorf("still there: %q", left)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // its code says how
		if got := cmd.ProcessState.ExitCode(); got != 143 {
			l.t.Errorf("ended with %d", got)
		}
	})
}

// What stops a discard anyway stops it before commands are ended, who cannot be brought back.
func TestADiscardThatIsRefusedEndsNoCommand(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.mark()
		cmd := l.begin(mark, "--grace", "50ms")
		l.must("git", "init", "-q", filepath.Join(l.tree, "inner"))
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 1 || !strings.Contains(o.stderr, "inner") {
			l.t.Errorf("got %+v", o)
		}
		if len(marked(l.t, mark)) < 3 {
			l.t.Error("the command was ended")
		}
		// Nor does one that a command in the sandbox asks for; behind walls it can see no record.
		o := l.try(nil, "git-agency", "exec", l.id, "--", "git-agency", "discard", l.id)
		if want := map[string]string{"none": "cannot discard it", "os": "behind its walls"}[l.isolation]; o.code != 1 || !strings.Contains(o.stderr, want) {
			l.t.Errorf("got %+v", o)
		}
		if len(marked(l.t, mark)) < 3 {
			l.t.Error("the command was ended")
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.t.Fatal(err)
		}
		_ = cmd.Wait() // it was told to
	})
}

// There is always somebody inside, unless the door is shut first.
func TestADiscardDoesNotWaitForThoseWhoComeAfterIt(t *testing.T) {
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
		if !waitFor(filepath.Join(l.tree, "running")) {
			l.t.Fatal("nothing begins")
		}
		if o := l.try(nil, "git-agency", "discard", l.id); o.code != 0 {
			l.t.Errorf("got %+v", o)
		}
		all.Wait()
	})
}

// Mending ends a sandbox too, and with it what runs there.
func TestMendingEndsTheCommandsOfASandboxThatHasToGo(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		mark := l.mark()
		cmd := l.begin(mark, "--grace", "50ms")
		l.write(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(l.tree))), "invocations", l.id, "meta.json"), "{")
		if o := l.try(nil, "git-agency", "doctor", "--fix", l.id); o.code != 0 || !strings.Contains(o.stderr, "were ended: 1") {
			l.t.Errorf("got %+v", o)
		}
		_ = cmd.Wait() // it was told to
		if left := marked(l.t, mark); len(left) > 0 {
			l.t.Errorf("still there: %q", left)
		}
		if got := l.git("show", "refs/agency/trash/"+l.id+":begun"); got != "daemon" {
			l.t.Errorf("what it wrote is lost: %q", got)
		}
	})
}

func TestAnExhaustedUserCannotShakeOffASubreaper(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 { // who knows no such limit
		rerunAsNobody(t, t.Name())
		return
	}
	l := newExecLab(t, ways["subreaper"])
	mark := l.mark()
	cmd := l.exec("--timeout", "1s", "--grace", "1s", "--", "perl", "-e", `
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
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
}

// A shell lets what it starts in the background ignore interrupts, and still somebody may send one on
// purpose; a hang-up that is ignored, as under nohup, is meant to be.
func TestAnInterruptCountsInTheBackgroundAndAHangUpDoesNotUnderNohup(t *testing.T) {
	t.Parallel()
	for ignored, want := range map[string]int{"INT": 130, "HUP": 3} {
		l := newExecLab(t, ways["walls"])
		cmd := l.exec("--", "sh", "-c", `touch running; while ! test -e on; do sleep 0.01; done; exit 3`)
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" ` + ignored + `; exec "$@"`, "sh"}, cmd.Args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !waitFor(filepath.Join(l.tree, "running")) {
			t.Fatal("it does not begin")
		}
		sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP}[ignored]
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if ignored == "HUP" {
			l.write(filepath.Join(l.tree, "on"), "")
		}
		_ = cmd.Wait() // its code says how
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: ended with %d", ignored, got)
		}
	}
}
