package update

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// Promise: who checks out a branch that nobody had, when it was made sure of that and before it moves, is taken along, or
// told what to do; what he has changed stays.
func TestAdvanceTakesAlongWhoChecksOutTheBranchMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		untrusted bool
		meanwhile func(l *gittest.Lab, tree string)
		behind    bool
		status    string // then
	}{
		{"as it was", false, func(*gittest.Lab, string) {}, false, ""},
		{"something else is changed", false, func(l *gittest.Lab, tree string) { l.WriteIn(tree, "keep.txt", "mine\n") }, false, " M keep.txt"},
		{"something is changed", false, func(l *gittest.Lab, tree string) { l.WriteIn(tree, "a.txt", "mine\n") }, true, "MM a.txt"},
		{"somebody could have named filters", true, func(*gittest.Lab, string) {}, true, "M  a.txt"},
	} {
		l := gittest.New(t)
		l.Write("keep.txt", "keep\n")
		l.Commit("second")
		to := ahead(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
		l.Git("branch", "free")
		linked := filepath.Join(gittest.TempDir(t), "linked")
		l.Git("worktree", "add", "-q", "--detach", linked)
		a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: !c.untrusted}
		x, err := Begin(t.Context(), repotest.OpenRepo(l), a)
		l.Must(err)
		l.Must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		l.GitIn(linked, "checkout", "-q", "free")
		c.meanwhile(l, linked)
		l.Must(errors.Join(x.Commit(t.Context()), x.Publish(t.Context()), x.Close()))
		if b := x.StaleCheckout(); (b != nil) != c.behind || c.behind && (b.Worktree != linked || b.Old != a.Old || b.New != to) {
			t.Errorf("%s: %v", c.name, b)
		}
		if got := l.GitIn(linked, "status", "--porcelain"); got != c.status {
			t.Errorf("%s: %q", c.name, got)
		}
		if !c.behind {
			continue
		}
		// What the person is told to do.
		if _, err := l.TryGit(linked, "read-tree", "-m", "-u", a.Old, to); (err == nil) != c.untrusted {
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
	for name, meanwhile := range map[string]func(l *gittest.Lab, tree string){
		"bisects it": func(l *gittest.Lab, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.GitIn(tree, "bisect", "start", "-q", "HEAD", "HEAD~1")
			l.GitIn(tree, "checkout", "-q", "--detach")
		},
		"rebases it": func(l *gittest.Lab, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.Env = append(l.Env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
			l.GitIn(tree, "rebase", "-q", "-i", "HEAD~1")
		},
		"has it twice": func(l *gittest.Lab, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.Git("checkout", "-q", "--ignore-other-worktrees", "free")
		},
	} {
		l := gittest.New(t)
		l.Write("keep.txt", "keep\n")
		l.Commit("second")
		to := ahead(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
		l.Git("branch", "free")
		linked := filepath.Join(gittest.TempDir(t), "linked")
		l.Git("worktree", "add", "-q", "--detach", linked)
		x, err := Begin(t.Context(), repotest.OpenRepo(l), Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: true})
		l.Must(err)
		l.Must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
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
	l := gittest.New(t)
	to := ahead(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
	l.Git("branch", "free")
	a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: true}
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	prepared := func() *Transaction {
		x, err := Begin(t.Context(), repotest.OpenRepo(l), a)
		l.Must(err)
		l.Must(errors.Join(x.Lock(t.Context()), x.Prepare(t.Context()), x.MoveFiles(t.Context())))
		return x
	}
	x := prepared()
	x.lateCheckoutTimeout = 100 * time.Millisecond
	l.GitIn(linked, "checkout", "-q", "free")
	l.WriteIn(l.Root, ".git/info/attributes", "a.txt filter=slow\n")
	l.Git("config", "filter.slow.smudge", "exec sleep 1000")
	gittest.Within(t, "taken along", func() { l.Must(errors.Join(x.Commit(t.Context()), x.Publish(t.Context()), x.Close())) })
	if b := x.StaleCheckout(); b == nil || b.Worktree != linked || !strings.Contains(b.Error(), "longer than 100ms") {
		t.Errorf("%v", b)
	}
	l.GitIn(linked, "checkout", "-q", "--detach")
	l.Git("update-ref", "refs/heads/free", a.Old)

	x = prepared()
	l.WriteIn(l.Root, ".git/reftable", "") // as which nobody can read who has it
	l.Must(x.Commit(t.Context()))
	if err := x.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "who has checked out free") {
		t.Errorf("%v", err)
	}
	l.Must(x.Close())
}
