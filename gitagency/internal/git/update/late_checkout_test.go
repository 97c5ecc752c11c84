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

// Promise: a worktree that checks out the branch after Prepare found it free, and before it moves, is updated too, or
// StaleCheckout reports it. Its local changes stay.
func TestPublishUpdatesLateCheckout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		untrusted bool
		meanwhile func(l *gittest.Fixture, tree string)
		stale     bool
		status    string // git status afterwards
	}{
		{"no local changes", false, func(*gittest.Fixture, string) {}, false, ""},
		{"another file changed", false, func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "keep.txt", "mine\n") }, false, " M keep.txt"},
		{"an updated file changed", false, func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "a.txt", "mine\n") }, true, "MM a.txt"},
		{"untrusted config", true, func(*gittest.Fixture, string) {}, true, "M  a.txt"},
	} {
		l := gittest.New(t)
		l.Write("keep.txt", "keep\n")
		l.Commit("second")
		to := commitOnMain(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
		l.Git("branch", "free")
		linked := filepath.Join(gittest.TempDir(t), "linked")
		l.Git("worktree", "add", "-q", "--detach", linked)
		a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: !c.untrusted}
		tx, err := Begin(t.Context(), repotest.OpenRepo(l), a)
		l.Must(err)
		l.Must(errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context()), tx.MoveFiles(t.Context())))
		l.GitIn(linked, "checkout", "-q", "free")
		c.meanwhile(l, linked)
		l.Must(errors.Join(tx.Commit(t.Context()), tx.Publish(t.Context()), tx.Close()))
		if b := tx.StaleCheckout(); (b != nil) != c.stale || c.stale && (b.Worktree != linked || b.Old != a.Old || b.New != to) {
			t.Errorf("%s: %v", c.name, b)
		}
		if got := l.GitIn(linked, "status", "--porcelain"); got != c.status {
			t.Errorf("%s: %q", c.name, got)
		}
		if !c.stale {
			continue
		}
		// The command that the user is told to run.
		if _, err := l.TryGit(linked, "read-tree", "-m", "-u", a.Old, to); (err == nil) != c.untrusted {
			t.Errorf("%s: %v", c.name, err)
		}
		if data, err := os.ReadFile(filepath.Join(linked, "a.txt")); err != nil || string(data) != map[bool]string{true: "changed\n", false: "mine\n"}[c.untrusted] {
			t.Errorf("%s: a.txt is %q, %v", c.name, data, err)
		}
	}
}

// Publish leaves a worktree alone that bisects or rebases the branch, and a branch with two checkouts, and returns no error:
// none of these is an ordinary checkout that came late.
func TestPublishSkipsBisectRebaseAndDoubleCheckout(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(l *gittest.Fixture, tree string){
		"bisect": func(l *gittest.Fixture, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.GitIn(tree, "bisect", "start", "-q", "HEAD", "HEAD~1")
			l.GitIn(tree, "checkout", "-q", "--detach")
		},
		"rebase": func(l *gittest.Fixture, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.Env = append(l.Env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
			l.GitIn(tree, "rebase", "-q", "-i", "HEAD~1")
		},
		"two checkouts": func(l *gittest.Fixture, tree string) {
			l.GitIn(tree, "checkout", "-q", "free")
			l.Git("checkout", "-q", "--ignore-other-worktrees", "free")
		},
	} {
		l := gittest.New(t)
		l.Write("keep.txt", "keep\n")
		l.Commit("second")
		to := commitOnMain(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
		l.Git("branch", "free")
		linked := filepath.Join(gittest.TempDir(t), "linked")
		l.Git("worktree", "add", "-q", "--detach", linked)
		tx, err := Begin(t.Context(), repotest.OpenRepo(l), Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: true})
		l.Must(err)
		l.Must(errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context()), tx.MoveFiles(t.Context())))
		meanwhile(l, linked)
		if err := errors.Join(tx.Commit(t.Context()), tx.Publish(t.Context()), tx.Close()); err != nil || tx.StaleCheckout() != nil {
			t.Errorf("%s: %v, %v", name, err, tx.StaleCheckout())
		}
		if data, err := os.ReadFile(filepath.Join(linked, "a.txt")); err != nil || string(data) != "a\n" {
			t.Errorf("%s: a.txt is %q, %v", name, data, err)
		}
	}
}

// The update of a late checkout has a time limit, and Publish returns an error if it cannot look for late checkouts.
func TestPublishReportsLateCheckoutFailure(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := commitOnMain(l, func(tree string) { l.WriteIn(tree, "a.txt", "changed\n") })
	l.Git("branch", "free")
	a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to, Trusted: true}
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	prepared := func() *Transaction {
		tx, err := Begin(t.Context(), repotest.OpenRepo(l), a)
		l.Must(err)
		l.Must(errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context()), tx.MoveFiles(t.Context())))
		return tx
	}
	tx := prepared()
	tx.lateCheckoutTimeout = 100 * time.Millisecond
	l.GitIn(linked, "checkout", "-q", "free")
	l.WriteIn(l.Root, ".git/info/attributes", "a.txt filter=slow\n")
	l.Git("config", "filter.slow.smudge", "exec sleep 1000")
	gittest.Within(t, "the update of the late checkout", func() { l.Must(errors.Join(tx.Commit(t.Context()), tx.Publish(t.Context()), tx.Close())) })
	if b := tx.StaleCheckout(); b == nil || b.Worktree != linked || !strings.Contains(b.Error(), "longer than 100ms") {
		t.Errorf("%v", b)
	}
	l.GitIn(linked, "checkout", "-q", "--detach")
	l.Git("update-ref", "refs/heads/free", a.Old)

	tx = prepared()
	l.WriteIn(l.Root, ".git/reftable", "") // with a reftable the checkouts cannot be found
	l.Must(tx.Commit(t.Context()))
	if err := tx.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "find the worktree that has free checked out") {
		t.Errorf("%v", err)
	}
	l.Must(tx.Close())
}
