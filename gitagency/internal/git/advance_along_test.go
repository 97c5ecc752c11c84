package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Promise: who checks out a branch that nobody had, when it was made sure of that and before it moves, is taken along, or
// told what to do; what he has changed stays.
func TestAdvanceTakesAlongWhoChecksOutTheBranchMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		untrusted bool
		meanwhile func(l *lab, tree string)
		behind    bool
		status    string // then
	}{
		{"as it was", false, func(*lab, string) {}, false, ""},
		{"something else is changed", false, func(l *lab, tree string) { l.put(tree, "keep.txt", "mine\n") }, false, " M keep.txt"},
		{"something is changed", false, func(l *lab, tree string) { l.put(tree, "a.txt", "mine\n") }, true, "MM a.txt"},
		{"somebody could have named filters", true, func(*lab, string) {}, true, "M  a.txt"},
	} {
		l := newLab(t)
		l.write("keep.txt", "keep\n")
		l.commit("second")
		to := l.ahead(func(tree string) { l.put(tree, "a.txt", "changed\n") })
		l.git("branch", "free")
		linked := filepath.Join(tempDir(t), "linked")
		l.git("worktree", "add", "-q", "--detach", linked)
		a := Update{Branch: "refs/heads/free", Old: l.git("rev-parse", "free"), New: to, Trusted: !c.untrusted}
		x, err := l.open().Begin(t.Context(), a)
		l.must(err)
		l.must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		l.in(linked, "checkout", "-q", "free")
		c.meanwhile(l, linked)
		l.must(errors.Join(x.Commit(t.Context()), x.Publish(t.Context()), x.Close()))
		if b := x.StaleCheckout(); (b != nil) != c.behind || c.behind && (b.Worktree != linked || b.Old != a.Old || b.New != to) {
			t.Errorf("%s: %v", c.name, b)
		}
		if got := l.in(linked, "status", "--porcelain"); got != c.status {
			t.Errorf("%s: %q", c.name, got)
		}
		if !c.behind {
			continue
		}
		// What the person is told to do.
		if _, err := l.try(linked, "read-tree", "-m", "-u", a.Old, to); (err == nil) != c.untrusted {
			t.Errorf("%s: %v", c.name, err)
		}
		if data, err := os.ReadFile(filepath.Join(linked, "a.txt")); err != nil || string(data) != map[bool]string{true: "changed\n", false: "mine\n"}[c.untrusted] {
			t.Errorf("%s: it is %q, %v", c.name, data, err)
		}
	}
}

// Who has the branch in a way in which nobody checks one out just like that is left as he is, and nothing has gone wrong.
func TestAdvanceTakesNobodyAlongWhoHadTheBranchBefore(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(l *lab, tree string){
		"bisects it": func(l *lab, tree string) {
			l.in(tree, "checkout", "-q", "free")
			l.in(tree, "bisect", "start", "-q", "HEAD", "HEAD~1")
			l.in(tree, "checkout", "-q", "--detach")
		},
		"rebases it": func(l *lab, tree string) {
			l.in(tree, "checkout", "-q", "free")
			l.env = append(l.env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
			l.in(tree, "rebase", "-q", "-i", "HEAD~1")
		},
		"has it twice": func(l *lab, tree string) {
			l.in(tree, "checkout", "-q", "free")
			l.git("checkout", "-q", "--ignore-other-worktrees", "free")
		},
	} {
		l := newLab(t)
		l.write("keep.txt", "keep\n")
		l.commit("second")
		to := l.ahead(func(tree string) { l.put(tree, "a.txt", "changed\n") })
		l.git("branch", "free")
		linked := filepath.Join(tempDir(t), "linked")
		l.git("worktree", "add", "-q", "--detach", linked)
		x, err := l.open().Begin(t.Context(), Update{Branch: "refs/heads/free", Old: l.git("rev-parse", "free"), New: to, Trusted: true})
		l.must(err)
		l.must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		meanwhile(l, linked)
		if err := errors.Join(x.Commit(t.Context()), x.Publish(t.Context()), x.Close()); err != nil || x.StaleCheckout() != nil {
			t.Errorf("%s: %v, %v", name, err, x.StaleCheckout())
		}
		if data, err := os.ReadFile(filepath.Join(linked, "a.txt")); err != nil || string(data) != "a\n" {
			t.Errorf("%s: it is %q, %v", name, data, err)
		}
	}
}

// Nobody waits for ever for a worktree that is taken along, and what keeps us from looking for one is said.
func TestAdvanceThatCannotTakeAlongEndsAndSaysSo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := l.ahead(func(tree string) { l.put(tree, "a.txt", "changed\n") })
	l.git("branch", "free")
	a := Update{Branch: "refs/heads/free", Old: l.git("rev-parse", "free"), New: to, Trusted: true}
	linked := filepath.Join(tempDir(t), "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	prepared := func() *Transaction {
		x, err := l.open().Begin(t.Context(), a)
		l.must(err)
		l.must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		return x
	}
	x := prepared()
	x.lateCheckoutTimeout = 100 * time.Millisecond
	l.in(linked, "checkout", "-q", "free")
	l.put(l.dir, ".git/info/attributes", "a.txt filter=slow\n")
	l.git("config", "filter.slow.smudge", "exec sleep 1000")
	within(t, "taken along", func() { l.must(errors.Join(x.Commit(t.Context()), x.Publish(t.Context()), x.Close())) })
	if b := x.StaleCheckout(); b == nil || b.Worktree != linked || !strings.Contains(b.Error(), "longer than 100ms") {
		t.Errorf("%v", b)
	}
	l.in(linked, "checkout", "-q", "--detach")
	l.git("update-ref", "refs/heads/free", a.Old)

	x = prepared()
	l.put(l.dir, ".git/reftable", "") // as which nobody can read who has it
	l.must(x.Commit(t.Context()))
	if err := x.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "who has checked out free") {
		t.Errorf("%v", err)
	}
	l.must(x.Close())
}
