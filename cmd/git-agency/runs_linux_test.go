package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// invocation returns what ls says about an invocation.
func (l *lab) invocation(id string) gitagency.Invocation {
	l.t.Helper()
	var all []gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("ls", "--all", "--json")), &all); err != nil {
		l.t.Fatal(err)
	}
	for _, inv := range all {
		if inv.ID == id {
			return inv
		}
	}
	l.t.Fatalf("there is no invocation %s", id)
	return gitagency.Invocation{}
}

// runDetached starts a detached run of a shell script and returns its id.
func (l *lab) runDetached(script string, flags ...string) string {
	l.t.Helper()
	return l.agency(append(append([]string{"run", "wt", "--detach", "-p", "task"}, flags...), "--", "sh", "-c", script)...)
}

// waitForLog waits until the log of a run has a text.
func (l *lab) waitForLog(id, text string) {
	l.t.Helper()
	path := filepath.Join(l.repoData(), "invocations", id, "stdout.log")
	if !waitUntil(func() bool { return strings.Contains(l.read(path), text) }) {
		l.t.Fatalf("the log of %s does not contain %q: %s", id, text, l.read(path))
	}
}

// requireGone checks that no process has an argument.
func (l *lab) requireGone(argument string) {
	l.t.Helper()
	if out, err := exec.Command("pgrep", "-f", regexp.QuoteMeta(argument)).Output(); err == nil {
		l.t.Errorf("processes with %q are left: %s", argument, out)
	}
}

// killRun kills the process that supervises a run, and waits until the kernel has ended all others of the run.
func (l *lab) killRun(id string) {
	l.t.Helper()
	if err := syscall.Kill(l.invocation(id).PID, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	if !waitUntil(func() bool { return !l.invocation(id).Running }) {
		l.t.Fatalf("processes of %s are left", id)
	}
}

// Twelve agents work at once on one worktree: three are killed, one hangs, one fills its log, one asks. Every state is
// right, and no task, output, commit, question or event gets into another sandbox.
func TestTwelveRunsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	gate := filepath.Join(l.dir, "gate")
	l.write(filepath.Join(gate, "closed"), "")
	l.git("config", "--global", "agency.sandbox.read", gate)
	want, tasks := map[string]string{}, map[string]string{}
	start := func(status, script string, flags ...string) string {
		t.Helper()
		task := fmt.Sprint("task number ", len(tasks))
		id := l.agency(append(append([]string{"run", "wt", "--detach", "-p", task}, flags...), "--", "sh", "-c",
			`echo "I am $AGENCY_INVOCATION_ID with $(cat)"; until test -e `+gate+`/open; do sleep 0.05; done; `+script)...)
		want[id], tasks[id] = status, task
		l.waitForLog(id, "I am "+id+" with "+task+"\n")
		return id
	}
	const commits = `echo "$AGENCY_INVOCATION_ID" >"$AGENCY_INVOCATION_ID"; git add .; git commit -qm mine` // no two conflict, of which events would tell
	for range 6 {
		start("finished", commits)
	}
	filling := start("finished", `yes "0123456789012345678901234567890123456789" | head -c 40000000; `+commits)
	asking := start("blocked", `echo '{"question":"which '$AGENCY_INVOCATION_ID'?"}' >$AGENCY_QUESTION_FILE`)
	var killed []string
	for range 3 {
		killed = append(killed, start("failed", `exec sleep 4321.5`))
	}
	hanging := start("timed_out", `trap "" TERM; while :; do sleep 1234.5; done`, "--timeout", "5s")
	for id := range want {
		if inv := l.invocation(id); inv.State != "running" && id != hanging { // which may have ended on a slow machine
			t.Errorf("%s is %s (%s)", id, inv.State, inv.StatusReason)
		}
	}
	for _, id := range killed {
		l.killRun(id)
	}
	l.write(filepath.Join(gate, "open"), "")
	o := l.try(nil, append([]string{"git-agency", "wait"}, killed[0], hanging, filling, asking)...)
	if o.code != 7 || strings.Count(o.stdout, "\n") != 4 {
		t.Errorf("wait: %+v", o)
	}
	for id, status := range want {
		l.try(nil, "git-agency", "wait", id)
		inv := l.invocation(id)
		if inv.Status != status || inv.State != status || inv.Running || inv.PID != 0 || inv.Task != tasks[id] {
			t.Errorf("%s is %s (%s), want %s; its task is %q", id, inv.Status, inv.StatusReason, status, inv.Task)
		}
		asked := map[string]string{asking: "which " + asking + "?"}[id]
		if inv.Question != asked {
			t.Errorf("%s asks %q", id, inv.Question)
		}
		// A warning names the holder of the repository lock, which may be another run.
		events := regexp.MustCompile(`(?m)^.*"event":"warning","message":"waiting for the repository lock.*\n`).ReplaceAllString(l.agency("events", id)+"\n", "")
		for other := range want {
			if other != id && strings.Contains(events, other) {
				t.Errorf("the events of %s have %s:\n%s", id, other, events)
			}
		}
		if log := l.read(filepath.Join(l.repoData(), "invocations", id, "stdout.log")); id != filling && strings.Count(log, "\n") != 1 {
			t.Errorf("log of %s: %.200q", id, log)
		}
		if status == "finished" {
			if mine := l.agency("exec", id, "--", "git", "log", "-p", "--format=", "HEAD^.."); strings.Count(mine, "\n+") != 2 || !strings.HasSuffix(mine, "\n+"+id) {
				t.Errorf("%s committed %q", id, mine)
			}
		}
	}
	if q := l.agency("questions", "--porcelain"); strings.Count(q, "invocation ") != 1 || !strings.Contains(q, "invocation "+asking+"\n") {
		t.Errorf("questions: %s", q)
	}
	if size := logSize(t, filepath.Join(l.repoData(), "invocations", filling)); size > 33<<20 || size < 16<<20 {
		t.Errorf("the log that was filled has %d bytes", size)
	}
	l.requireGone("1234.5")
	l.requireGone("4321.5")
	// A killed run goes on.
	if o := l.try(nil, "git-agency", "resume", killed[1], "-p", "again", "--timeout", "1s"); o.code != 124 {
		t.Errorf("resume of a killed run: %+v", o)
	}
}

func logSize(t *testing.T, dir string) (size int64) {
	t.Helper()
	for _, name := range []string{"stdout.log", "stdout.log.1"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size += fi.Size()
	}
	return size
}

// After a restart of the machine, all processes are gone and their ids belong to others: no run counts as running, stop ends
// no foreign process, and each run can be resumed. A process with the recorded id is another one if it began at another time
// or after another boot.
func TestRunsAfterRestartOfMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	script := `if test "$(cat)" = again; then echo resumed $AGENCY_SESSION_ID; else echo begun $AGENCY_SESSION_ID; exec sleep 3131.5; fi`
	foreign := l.runDetached(script)
	l.waitForLog(foreign, "begun")
	pid, identity := l.supervisor(foreign)
	boot, began, _ := strings.Cut(identity, ":")
	if id := l.read("/proc/sys/kernel/random/boot_id"); len(boot) < 8 || !strings.HasPrefix(id, boot) {
		t.Errorf("the record has boot %s, the machine %s", boot, id)
	}
	for _, c := range []struct{ name, identity, status string }{
		{"the supervisor itself", identity, "running"}, // so the other cases depend on the identity alone
		{"a process that began at another time", boot + ":1", "failed"},
		{"a process that began at the same time after another boot", "01234567:" + began, "failed"},
		{"a record without the time", "", "failed"},
	} {
		id := l.runDetached(script)
		l.waitForLog(id, "begun")
		l.killRun(id)
		l.setSupervisor(id, pid, c.identity)
		inv := l.invocation(id)
		if inv.Status != c.status || inv.State != c.status {
			t.Errorf("%s: it is %s, %s (%s)", c.name, inv.Status, inv.State, inv.StatusReason)
		}
		if c.status == "running" {
			l.setSupervisor(id, pid, "")
			continue
		}
		if inv.Running || inv.PID != 0 || !strings.Contains(inv.StatusReason, "restarted") {
			t.Errorf("%s: process %d, %s", c.name, inv.PID, inv.StatusReason)
		}
		l.try(nil, "git-agency", "stop", id)
		if o := l.try(nil, "git-agency", "resume", id, "-p", "again"); o.code != 0 || !strings.Contains(o.stdout, "resumed "+inv.SessionID) {
			t.Errorf("%s: resume: %+v", c.name, o)
		}
		if log := l.agency("logs", id); !strings.Contains(log, "begun "+inv.SessionID) {
			t.Errorf("%s: the session changed: %s", c.name, log)
		}
	}
	if inv := l.invocation(foreign); inv.Status != "running" || inv.PID != pid {
		t.Errorf("the foreign process was ended: %s (%s)", inv.Status, inv.StatusReason)
	}
	l.agency("stop", foreign)
	l.requireGone("3131.5")
}

// supervisor returns the process in the record of a run, and what identifies it.
func (l *lab) supervisor(id string) (pid int, identity string) {
	l.t.Helper()
	var record struct {
		PID     int    `json:"pid"`
		Started string `json:"pid_started"`
	}
	if err := json.Unmarshal([]byte(l.read(l.recordPath(id))), &record); err != nil || record.PID == 0 || record.Started == "" {
		l.t.Fatalf("%+v, %v", record, err)
	}
	return record.PID, record.Started
}

// setSupervisor writes another process into the record of a run that has one.
func (l *lab) setSupervisor(id string, pid int, identity string) {
	l.t.Helper()
	var record map[string]json.RawMessage
	if err := json.Unmarshal([]byte(l.read(l.recordPath(id))), &record); err != nil || record["pid"] == nil {
		l.t.Fatalf("%s, %v", record["pid"], err)
	}
	record["pid"], record["pid_started"] = json.RawMessage(strconv.Itoa(pid)), json.RawMessage(strconv.Quote(identity))
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		l.t.Fatal(err)
	}
	l.write(l.recordPath(id), string(text)+"\n")
}

func (l *lab) recordPath(id string) string {
	return filepath.Join(l.repoData(), "invocations", id, "meta.json")
}

// A detached run goes on when its caller logs out: the session of the caller ends, its terminal hangs up, and all of its
// processes are killed.
func TestDetachedRunSurvivesSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	for _, flag := range []string{"", "--tty"} {
		out := filepath.Join(l.dir, "id"+flag)
		session := l.startOnTerminal(80, nil, "sh", "-c", `git-agency run wt --detach `+flag+` -- sh -c 'echo begun; until test -e go; do sleep 0.02; done; rm go; echo done' >"$0.new" && mv "$0.new" "$0"; trap "" HUP; while :; do sleep 1000; done`, out)
		if !waitForFile(out) {
			t.Fatalf("the run was not started: %s", session.text())
		}
		id := strings.TrimSpace(l.read(out))
		if !waitUntil(func() bool { return strings.Contains(l.agency("logs", id), "begun") }) {
			t.Fatal("the run did not begin")
		}
		for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL} {
			for _, line := range strings.Fields(l.must("ps", "-s", strconv.Itoa(session.cmd.Process.Pid), "-o", "pid=")) {
				pid, err := strconv.Atoi(line)
				if err == nil {
					err = syscall.Kill(pid, signal)
				}
				if err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatalf("kill %s: %v", line, err)
				}
			}
		}
		session.wait()
		if inv := l.invocation(id); inv.Status != "running" {
			t.Errorf("%s: it is %s (%s)", flag, inv.Status, inv.StatusReason)
		}
		l.write(filepath.Join(l.dir, "go"), "")
		l.agency("put", id, filepath.Join(l.dir, "go"), "go")
		l.agency("wait", id)
		if log := l.agency("logs", id); !strings.Contains(log, "done") {
			t.Errorf("%s: it wrote %q", flag, log)
		}
	}
}

// Of several processes that execute the same run, one does; the others refuse.
func TestRunIsExecutedOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runDetached(`echo run; until test -e go; do sleep 0.02; done; rm -f go; echo x >>count`, "--commit-all")
	codes := make(chan int, 6)
	for range cap(codes) {
		go func() { codes <- l.try(nil, "git-agency", "resume", id, "-p", "again").code }()
	}
	for range cap(codes) {
		if code := <-codes; code != 1 {
			t.Errorf("a second resume ended with %d", code)
		}
	}
	l.write(filepath.Join(l.dir, "go"), "")
	l.agency("put", id, filepath.Join(l.dir, "go"), "go")
	l.try(nil, "git-agency", "wait", id)
	if inv := l.invocation(id); inv.Runs != 1 || inv.Status != "finished" {
		t.Errorf("%d runs, %s (%s)", inv.Runs, inv.Status, inv.StatusReason)
	}
}

// A large task with any bytes arrives intact, and is in no process list, event or message.
func TestTaskArrivesIntact(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	task := "-p \"quotes\" 'x' $(id) `id`\n\\n \x1b[31m " + strings.Repeat("zq47 0123456789\n", 200<<10/16) + "\xff\x00end"
	path := filepath.Join(l.dir, "task")
	l.write(path, task)
	id := l.agency("run", "wt", "--detach", "--task-file", path, "--", "sh", "-c", `cat >$TMPDIR/in; cmp $TMPDIR/in $AGENCY_TASK_FILE && wc -c <$TMPDIR/in && sha256sum <$TMPDIR/in; until test -e go; do sleep 0.02; done; rm go`)
	sum := strings.Fields(l.must("sha256sum", path))[0]
	l.waitForLog(id, sum)
	l.requireGone("zq47")
	l.write(filepath.Join(l.dir, "go"), "")
	l.agency("put", id, filepath.Join(l.dir, "go"), "go")
	l.agency("wait", id)
	if text := l.agency("events"); strings.Contains(text, "zq47") {
		t.Error("the task is in an event")
	}
	if show := l.agency("show", id); strings.Contains(show, "\x1b") {
		t.Error("show prints an escape sequence of the task")
	}
}

// An interrupt of a foreground run ends its processes, and the run is stopped.
func TestInterruptStopsRun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	cmd := exec.Command(filepath.Join(l.bin, "git-agency"), "run", "wt", "--", "sh", "-c", "echo begun; sleep 2121.5")
	cmd.Dir, cmd.Env = l.repo, l.env
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("it exited with %d", code)
	}
	var all []gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("ls", "--json")), &all); err != nil || len(all) != 1 || all[0].Status != "stopped" {
		t.Errorf("%+v, %v", all, err)
	}
	l.requireGone("2121.5")
}

// A caller that closes the pipe it reads from does not end the run.
func TestRunGoesOnAfterCallerClosesPipe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	for _, redirect := range []string{"", "2>&1 >/dev/null"} {
		l.must("sh", "-c", `git-agency run wt -p task -- sh -c 'for i in 1 2 3 4 5; do echo $i; echo $i >&2; sleep 0.05; done; echo w >w; git add w; git commit -qm w' `+redirect+` | head -1`)
		inv := l.invocation(strings.Fields(l.agency("ls", "--format", "%(invocation_id)"))[0])
		if inv.Status != "finished" || len(inv.Warnings) > 0 {
			t.Errorf("%q: it is %s (%s), %q", redirect, inv.Status, inv.StatusReason, inv.Warnings)
		}
		l.agency("discard", inv.ID)
	}
}

// Of several resumes at once, the agent gets the answer of the one that was accepted, and the others change nothing.
func TestConcurrentAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	script := `if test -n "${AGENCY_ANSWER_FILE-}"; then echo "got $(cat $AGENCY_ANSWER_FILE) $(cat)"; sleep 0.3; else echo '{"question":"which?"}' >$AGENCY_QUESTION_FILE; fi`
	if o := l.try(nil, "git-agency", "run", "wt", "-p", "task", "--", "sh", "-c", script); o.code != 7 {
		t.Fatalf("%+v", o)
	}
	id := l.agency("ls", "--format", "%(invocation_id)")
	type result struct {
		answer string
		o      outcome
	}
	results := make(chan result)
	for i := range 6 {
		go func() {
			answer := fmt.Sprint("answer", i)
			results <- result{answer, l.try(nil, "git-agency", "resume", id, "--answer", answer)}
		}()
	}
	accepted := 0
	for range 6 {
		switch r := <-results; {
		case r.o.code == 0 && strings.Contains(r.o.stdout, "got "+r.answer+" "+r.answer+"\n"):
			accepted++
		case r.o.code != 1:
			t.Errorf("%s: %+v", r.answer, r.o)
		}
	}
	if log := l.agency("log", id); accepted != 1 || strings.Count(log, "answer") != 2 { // the kind of the event and its text
		t.Errorf("%d answers were accepted:\n%s", accepted, log)
	}
}

// A question is not lost when the process that supervises the run is killed after it was asked.
func TestQuestionSurvivesKilledSupervisor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runDetached(`if test "$(cat)" = this; then echo done; exit; fi; echo '{"question":"precious?","options":["this"]}' >$AGENCY_QUESTION_FILE; echo asked; exec sleep 1000`)
	l.waitForLog(id, "asked")
	if err := syscall.Kill(l.invocation(id).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o := l.try(nil, "git-agency", "wait", id); o.code != 7 {
		t.Errorf("wait: %+v", o)
	}
	if inv := l.invocation(id); inv.Status != "blocked" || inv.Question != "precious?" {
		t.Errorf("it is %s, and asks %q", inv.Status, inv.Question)
	}
	l.checkResumesWithAnswer(id)
}

// checkResumesWithAnswer checks that an agent that asks is resumed with the answer "this", to which it prints "done", and
// not without an answer.
func (l *lab) checkResumesWithAnswer(id string) {
	l.t.Helper()
	if o := l.try(nil, "git-agency", "resume", id); o.code != 1 || !strings.Contains(o.stderr, "waits for an answer") {
		l.t.Errorf("resume without an answer: %+v", o)
	}
	if o := l.try(nil, "git-agency", "resume", id, "--answer", "this"); o.code != 0 || o.stdout != "done\n" {
		l.t.Errorf("resume: %+v", o)
	}
}

// The state directory of an agent can be written by the agent: a symbolic link that it leaves there does not lead the host
// to files of the user.
func TestStateDirectoryOfAgentLeadsNowhere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	programs, victim := filepath.Join(l.dir, "programs"), filepath.Join(l.dir, "home", "victim")
	l.write(filepath.Join(victim, ".claude.json"), `{"mine":1}`)
	l.write(filepath.Join(programs, "claude"), scriptedClaude)
	if err := os.Chmod(filepath.Join(programs, "claude"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + programs + ":" + l.bin + ":" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=of-the-test"}
	if o := l.try(env, "git-agency", "run", "wt", "--runner", "claude", "-p", "Add refunds."); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	id := l.agency("ls", "--format", "%(invocation_id)")
	state := filepath.Join(l.repoData(), "sandboxes", id, "walls", "agent-state")
	if !exists(filepath.Join(state, "claude", ".claude.json")) {
		t.Fatal("there is no state")
	}
	l.agency("exec", id, "--", "sh", "-c", `rm -r "$0/claude" && ln -s "$1" "$0/claude"`, state, victim)
	o := l.try(env, "git-agency", "resume", id, "-p", "Add refunds.")
	if got := l.read(filepath.Join(victim, ".claude.json")); o.code != 125 || got != `{"mine":1}` {
		t.Errorf("%+v; the file of the user is %s", o, got)
	}
}
