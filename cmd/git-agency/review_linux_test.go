package main

import (
	"strings"
	"testing"
)

// reviewSession is a review on a terminal.
type reviewSession struct {
	*terminalSession
	read int // bytes of the output before the last answer
}

func (l *lab) startReview(args ...string) *reviewSession {
	l.t.Helper()
	argv := append([]string{"git", "agency", "review"}, args...)
	return &reviewSession{terminalSession: l.startOnTerminal(100, []string{"GIT_PAGER=" + prefixPager, "NO_COLOR=1"}, argv...)}
}

// answer waits for a prompt after the last one, types a line, and returns the output before the prompt.
func (s *reviewSession) answer(prompt, line string) (before string) {
	s.t.Helper()
	s.waitForTextAfter(s.read, prompt)
	before = s.text()[s.read:]
	s.read = len(s.text())
	s.typeKeys(line + "\n")
	return before
}

// newReviewLab returns a repository with runs that wait for a person, by the name of what will be done with each.
func newReviewLab(t *testing.T) (_ *lab, ids map[string]string) {
	t.Helper()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	l.git("config", "agency.autoDetach", "false") // otherwise clean-up would continue in the background after the test
	ids = map[string]string{}
	start := func(name string, code int, script string) {
		t.Helper()
		if out := l.try(nil, "git", "agency", "run", "wt", "--name", name, "-p", "task of "+name+"\nwith \x1b[31m two lines", "--", "sh", "-c", script); out.code != code {
			t.Fatalf("%s: got %+v", name, out)
		}
		ids[name] = l.agency("ls", "--format", "%(invocation_name) %(invocation_id)")
		_, ids[name], _ = strings.Cut(ids[name], name+" ")
		ids[name], _, _ = strings.Cut(ids[name], "\n")
	}
	const commit = "; git add .; git commit -qm work"
	start("discard", 3, "echo new >new; exit 3")
	start("skip", 0, "echo skipped >skipped"+commit)
	start("land", 0, "echo landed >landed; echo 'output \x1b[2J'"+commit)
	start("reject", 0, "cat >>got"+commit)
	start("answer", 7, `if test -e asked; then cat >got; rm asked; else touch asked; echo '{"question":"which \u001b[31mone?","options":["red","blue"]}' >$AGENCY_QUESTION_FILE; fi`+commit)
	start("nothing", 0, "true") // committed nothing, so that nothing waits
	l.agency("submit", ids["land"], "-m", "please")
	l.agency("submit", ids["reject"])
	return l, ids
}

// A review goes through questions, submitted work, finished work and failures in this order; lands, rejects with a reason
// that the agent gets, answers, skips and discards as the user says.
func TestReviewOnTerminal(t *testing.T) {
	t.Parallel()
	l, ids := newReviewLab(t)
	s := l.startReview()

	shown := s.answer("(1 of 5) [d,t,l,o,L,a,r,x,s,q,?]? ", "j")
	for _, want := range []string{ids["answer"], "state       blocked", "task of answer\n    with \\x1b[31m two lines", "question:\n    which \\x1b[31mone?", "options:\n    1. red\n    2. blue", "radar       clean"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the summary lacks %q:\n%s", want, shown)
		}
	}
	if got := s.answer("]? ", "?"); !strings.Contains(got, "not in review") {
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "a"); !strings.Contains(got, "\na  answer") || strings.Contains(got, "\nj  reject") {
		t.Errorf("got %q", got)
	}
	s.answer("answer, or number of an option (empty: none): ", "")
	if got := s.answer("]? ", "a"); !strings.Contains(got, "nothing was changed") {
		t.Errorf("got %q", got)
	}
	s.answer("answer, or number of an option (empty: none): ", "2")

	if got := s.answer("(2 of 5) [d,t,l,o,L,j,r,x,s,q,?]? ", "d"); !strings.Contains(got, "the agent of "+ids["answer"]+" goes on") || !strings.Contains(got, "please") {
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "t"); !strings.Contains(got, "P:+landed\n") { // through the pager
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "l"); !strings.Contains(got, "P:task of land\nP:with \\x1b[31m two lines") {
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "o"); !strings.Contains(got, " submitted ") || !strings.Contains(got, "P:") {
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "?"); !strings.Contains(got, "P:output \n") || strings.Contains(got, "[2J") {
		t.Errorf("got %q", got)
	}
	if got := s.answer("]? ", "L"); !strings.Contains(got, "x  discard") {
		t.Errorf("got %q", got)
	}

	if got := s.answer("(3 of 5) ", "j"); !strings.Contains(got, "landed 1 commit of "+ids["land"]) {
		t.Errorf("got %q", got)
	}
	s.answer("reason (empty: do not reject): ", "not nice enough")
	if got := s.answer("resume its agent with this reason? [y/N] ", "y"); !strings.Contains(got, "rejected "+ids["reject"]) {
		t.Errorf("got %q", got)
	}

	s.answer("(4 of 5) [d,t,l,o,L,r,x,s,q,?]? ", "")

	shown = s.answer("(5 of 5) ", "L")
	if !strings.Contains(shown, ids["discard"]) || !strings.Contains(shown, "it exited with 3") {
		t.Errorf("got %q", shown)
	}
	if got := s.answer("]? ", "x"); !strings.Contains(got, "error: ") || !strings.Contains(got, "hint: ") || !strings.Contains(got, "git agency land "+ids["discard"]+" --leave") {
		t.Errorf("got %q", got)
	}
	s.answer("brings it back [y/N] ", "n")
	s.answer("]? ", "x")
	s.answer("brings it back [y/N] ", "y")
	if out := s.wait(); out.code != 0 || strings.Contains(out.stdout, "\x1b") {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}

	l.agency("wait", ids["answer"], ids["reject"])
	for name, want := range map[string]string{"answer": "finished", "land": "landed", "reject": "finished", "skip": "finished", "discard": "discarded", "nothing": "finished"} {
		if inv := l.showInvocation(ids[name]); inv.State != want {
			t.Errorf("%s: %s %s, want %s", name, inv.State, inv.StatusReason, want)
		}
	}
	if got := l.agency("exec", ids["answer"], "--", "cat", "got"); got != "blue" {
		t.Errorf("the agent got the answer %q", got)
	}
	if got := l.agency("exec", ids["reject"], "--", "cat", "got"); !strings.Contains(got, " two linesYour work was rejected. The reason:\n\nnot nice enough\n") {
		t.Errorf("the agent got the reason %q", got)
	}
}

// A sandbox without changes is not answered with silence.
func TestReviewShowsEmptyDiff(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	s := l.startReview(l.agency("start", "wt"))
	s.answer("]? ", "d")
	if got := s.answer("]? ", "q"); !strings.Contains(got, "P:no changes\n") {
		t.Errorf("got %q", got)
	}
	if out := s.wait(); out.code != 0 {
		t.Errorf("got %+v", out)
	}
}

// An interrupt, the end of the input and q end a review and change nothing. What changed while the user looked is told.
func TestReviewEndsAndSkipsWhatChanged(t *testing.T) {
	t.Parallel()
	l, ids := newReviewLab(t)
	before := l.agency("ls", "--all", "--porcelain")

	s := l.startReview()
	s.answer("]? ", "a")
	s.waitForTextAfter(s.read, "number of an option (empty: none): ")
	s.typeKeys("half an answer\x03")
	if out := s.wait(); out.code != 130 {
		t.Errorf("after Ctrl-C: got %d and %q", out.code, out.stdout)
	}
	s = l.startReview()
	s.answer("]? ", "x")
	s.waitForTextAfter(s.read, "[y/N] ")
	s.typeKeys("\x04")
	if out := s.wait(); out.code != 0 {
		t.Errorf("after Ctrl-D: got %d and %q", out.code, out.stdout)
	}
	s = l.startReview("@")
	if got := s.answer("(1 of 1) ", "q"); !strings.Contains(got, ids["nothing"]) {
		t.Errorf("got %q", got)
	}
	if out := s.wait(); out.code != 0 {
		t.Errorf("after q: got %d and %q", out.code, out.stdout)
	}
	if after := l.agency("ls", "--all", "--porcelain"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	s = l.startReview(ids["land"], ids["skip"], ids["discard"])
	s.waitForText("(1 of 3) ")
	l.agency("land", ids["land"])
	l.agency("discard", ids["skip"])
	s.answer("]? ", "L")
	s.waitForTextAfter(s.read, "(3 of 3) ")
	for _, want := range []string{ids["land"] + " is landed now; skipped", ids["skip"] + " is discarded now; skipped"} {
		if !strings.Contains(s.text(), want) {
			t.Errorf("%q is not in %q", want, s.text())
		}
	}
	l.agency("exec", ids["discard"], "--", "touch", "newer")
	s.answer("]? ", "r")
	s.answer("further task (empty: go on without one): ", "")
	if got := s.answer("(3 of 3) ", "q"); !strings.Contains(got, "the work of "+ids["discard"]+" has changed meanwhile; nothing was done") {
		t.Errorf("got %q", got)
	}
	if out := s.wait(); out.code != 0 {
		t.Errorf("got %d and %q", out.code, out.stdout)
	}
}
