package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// runAsking starts a detached run of a shell script that asks and waits, and returns its id when the question is recorded. The
// test ends when the process of the run has ended, which goes on after it has recorded the end.
func (l *lab) runAsking(script string) string {
	l.t.Helper()
	l.must("git", "config", "agency.askTimeout", "-1")
	id := l.runDetached(script)
	if o := l.try(nil, "git-agency", "wait", id); o.code != 7 || o.stdout != id+" blocked\n" {
		l.t.Fatalf("wait: %+v; log %s", o, l.agency("logs", id))
	}
	pid := l.invocation(id).PID
	l.t.Cleanup(func() {
		if !waitUntil(func() bool { return syscall.Kill(pid, 0) != nil }) {
			l.t.Errorf("the process %d of %s is left", pid, id)
		}
	})
	return id
}

// Of several answers at once, a running agent gets the one that was accepted, once, and the others are told so.
func TestConcurrentAnswersToRunningAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runAsking(`echo "got $(git agency ask which?)"; until test -e go; do sleep 0.05; done; rm go`)
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
	var accepted []string
	for range 6 {
		switch r := <-results; {
		case r.o.code == 0 && strings.Contains(r.o.stderr, "the running agent of "+id+" got the answer"):
			accepted = append(accepted, r.answer)
		case r.o.code != 1 || !strings.Contains(r.o.stderr, "works, and waits for no answer") || !strings.Contains(r.o.stderr, "git agency log "+id):
			t.Errorf("%s: %+v", r.answer, r.o)
		}
	}
	if len(accepted) != 1 {
		t.Fatalf("accepted %q", accepted)
	}
	l.waitForLog(id, "got "+accepted[0]+"\n")
	if inv := l.invocation(id); inv.State != "running" || inv.Question != "" {
		t.Errorf("it is %s, and asks %q", inv.State, inv.Question)
	}
	l.write(filepath.Join(l.dir, "go"), "")
	l.agency("put", id, filepath.Join(l.dir, "go"), "go")
	l.agency("wait", id)
	if log := l.agency("log", id); strings.Count(log, "answer") != 2 || !strings.Contains(log, accepted[0]) { // the kind of the event and its text
		t.Errorf("log:\n%s", log)
	}
}

// A question that is waited for is not lost when the process that supervises the run is killed.
func TestAwaitedQuestionSurvivesKilledSupervisor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runAsking(`if test "$(cat)" = this; then echo done; exit; fi; git agency ask precious? --option this --context "4321.7 seconds"`)
	if err := syscall.Kill(l.invocation(id).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { return l.invocation(id).PID == 0 }) {
		t.Fatal("the killed supervisor counts as running")
	}
	if inv := l.invocation(id); inv.Status != "blocked" || inv.State != "blocked" || inv.Question != "precious?" || inv.AskedAt.IsZero() {
		t.Errorf("it is %s, and asks %q", inv.Status, inv.Question)
	}
	if q := l.agency("questions", "--porcelain"); !strings.Contains(q, "question precious?\noption this\n") {
		t.Errorf("questions: %s", q)
	}
	if !waitUntil(func() bool { return l.try(nil, "pgrep", "-f", "4321.7 seconds").code != 0 }) {
		t.Error("the process that asks is left")
	}
	l.checkResumesWithAnswer(id)
}

// Stopping a run that waits for an answer keeps the question, and leaves no process.
func TestStopOfAgentThatWaitsForAnswer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runAsking(`git agency ask stop? --context "4321.6 seconds"`)
	l.agency("stop", id)
	if inv := l.invocation(id); inv.Status != "stopped" || inv.Question != "stop?" || inv.PID != 0 {
		t.Errorf("it is %s, and asks %q", inv.Status, inv.Question)
	}
	l.requireGone("4321.6 seconds")
}

// Nothing that a sandbox puts in the place of an answer is followed, and an agent cannot answer itself in the record.
func TestHostileAnswerFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	victim := filepath.Join(l.dir, "home", "victim")
	for name, hostile := range map[string]string{
		"a symbolic link": "ln -s " + victim,
		"a FIFO":          "mkfifo",
		"a large file":    "truncate -s 1T",
		"a directory":     "mkdir",
	} {
		l.write(victim, "mine")
		// The process that asks is stopped, with all of its threads, while its answer is replaced.
		id := l.runAsking(`git-agency ask which? >.agency/got & until git-agency show | grep -q which; do sleep 0.01; done
kill -STOP $!; while grep -L "T (stopped)" /proc/$!/task/*/status | grep -q .; do sleep 0.01; done
for f in .agency/asking-*; do ` + hostile + ` .agency/answer-${f##*-}.json; done; echo ready; until test -e .agency/go; do sleep 0.01; done; kill -CONT $!; wait $!; echo "got $(cat .agency/got)"`)
		l.waitForLog(id, "ready")
		o := l.try(nil, "git-agency", "resume", id, "--answer", "true answer")
		mailbox := filepath.Join(l.repoData(), "invocations", id, "mailbox")
		if name == "a directory" {
			if o.code == 0 || l.invocation(id).Question != "which?" {
				t.Errorf("%s: %+v", name, o)
			}
			l.agency("stop", id)
		} else {
			if o.code != 0 {
				t.Errorf("%s: %+v", name, o)
			}
			l.write(filepath.Join(mailbox, "go"), "")
			l.waitForLog(id, "got true answer\n")
			l.agency("wait", id)
		}
		if data, err := os.ReadFile(victim); string(data) != "mine" {
			t.Errorf("%s was followed: %s, %v", name, data, err)
		}
	}
}

// A review offers to answer an agent that waits while it runs, and nothing else that would change its work.
func TestReviewAnswersRunningAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.runAsking(`echo "got $(git agency ask which?)"`)
	s := l.startReview()
	if shown := s.answer("(1 of 1) [d,t,l,o,a,s,q,?]? ", "L"); !strings.Contains(shown, "state       blocked") || !strings.Contains(shown, "question:\n    which?") {
		t.Errorf("shown: %s", shown)
	}
	if got := s.answer("]? ", "a"); !strings.Contains(got, "its agent runs, and waits for the answer") {
		t.Errorf("got %q", got)
	}
	s.answer("answer (empty: none): ", "this one")
	if out := s.wait(); out.code != 0 || !strings.Contains(out.stdout, "the running agent of "+id+" got the answer") {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
	l.agency("wait", id)
	l.waitForLog(id, "got this one\n")
}
