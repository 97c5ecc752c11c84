package update

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

func TestSeatFindsTheWorktreeThatHasABranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "li\nnked")
	l.Git("worktree", "add", "-q", "-b", "other", linked)
	repo := repotest.OpenRepo(l)
	seat := func(branch, wantDir, wantTree string) {
		t.Helper()
		dir, tree, err := CheckedOutIn(t.Context(), repo, "refs/heads/"+branch)
		if err != nil || dir != wantDir || tree != wantTree {
			t.Errorf("%s: %q, %q, %v", branch, dir, tree, err)
		}
	}
	l.Git("branch", "free")
	seat("main", repo.CommonDir, l.Root)
	admin, err := git.DotGitTarget(linked)
	l.Must(err)
	seat("other", admin, linked)
	seat("free", "", "")

	busy := func(what string) {
		t.Helper()
		var e *OperationInProgressError
		if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/other"); !errors.As(err, &e) || e.Operation != what || e.Worktree != linked {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.GitIn(linked, "commit", "-q", "--allow-empty", "-m", "x")
	l.GitIn(linked, "bisect", "start", "-q", "HEAD", "HEAD~1")
	l.GitIn(linked, "checkout", "-q", "--detach")
	busy("bisect")
	l.GitIn(linked, "bisect", "reset")
	l.Env = append(l.Env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
	l.GitIn(linked, "rebase", "-q", "-i", "HEAD~1")
	busy("rebase")
	l.GitIn(linked, "rebase", "--abort")

	// By another name.
	l.Git("symbolic-ref", "refs/heads/alias", "refs/heads/other")
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/alias")
	seat("other", admin, linked)
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/main")
	for range 20 { // in the same words every time
		var many *MultipleCheckoutsError
		if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/main"); !errors.As(err, &many) || !slices.Equal(many.Worktrees, []string{l.Root, linked}) {
			t.Errorf("twice: %v", err)
		}
	}
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/other")
	l.Must(os.RemoveAll(linked))
	var lost *MissingWorktreeError
	if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/other"); !errors.As(err, &lost) || lost.Worktree != linked {
		t.Errorf("gone: %v", err)
	}
	seat("main", repo.CommonDir, l.Root)

	// A bare one has no tree, also when only its own settings say so.
	bare := filepath.Join(gittest.TempDir(t), "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	repo = repotest.OpenRepoIn(l, bare)
	seat("main", "", "")
	l.Git("config", "core.bare", "true")
	repo = repotest.OpenRepo(l)
	seat("main", "", "")
	l.Git("config", "--unset", "core.bare")
	l.Git("config", "extensions.worktreeConfig", "true")
	l.WriteIn(l.Root, ".git/config.worktree", "[core]\n\tbare = true\n")
	l.Git("--git-dir="+filepath.Join(l.Root, ".git"), "worktree", "prune")
	again := filepath.Join(gittest.TempDir(t), "again")
	l.Git("--git-dir="+filepath.Join(l.Root, ".git"), "worktree", "add", "-q", again, "other")
	repo = repotest.OpenRepoIn(l, again)
	seat("main", "", "")
	seat("other", filepath.Join(l.Root, ".git/worktrees/again"), again)
}

func TestAdvanceOfRefsAlone(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := varied(l)
	l.Git("branch", "free")
	ad := &advancer{Lab: l, repo: repotest.OpenRepo(l), tree: l.Root}
	zeros := strings.Repeat("0", len(to))
	ad.a = Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "main"), New: to, Reason: "land"}
	ad.a.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: to}}
	before := ad.sum()

	x, err := Begin(t.Context(), ad.repo, ad.a)
	l.Must(err)
	l.Must(x.Lock(t.Context()))
	l.Must(x.Prepare(t.Context()))
	if _, err := l.TryGit(l.Root, "-c", "core.filesRefLockTimeout=0", "update-ref", "refs/heads/free", to); err == nil {
		t.Error("somebody else could move it")
	}
	l.Must(x.Close())
	gittest.RequireSame(t, "given up", ad.sum(), before)
	for _, m := range []struct {
		ref string
		do  func()
	}{
		{"refs/heads/free", func() { l.Git("update-ref", "refs/heads/free", to) }},
		{"refs/heads/free", func() { l.Git("update-ref", "-d", "refs/heads/free") }},
		{"refs/agency/trash/x", func() { l.Git("update-ref", "refs/agency/trash/x", to) }},
	} {
		x, err := Begin(t.Context(), ad.repo, ad.a)
		l.Must(err)
		m.do()
		l.Git("pack-refs", "--all")
		var e *MovedRefError
		if err := errors.Join(x.Lock(t.Context()), x.Prepare(t.Context())); !errors.As(err, &e) || e.Ref != m.ref {
			t.Errorf("%s: %v", m.ref, err)
		}
		if m.ref == ad.a.Branch {
			l.Must(x.Close())
		}
		l.Git("update-ref", "refs/heads/free", ad.a.Old)
		l.Git("update-ref", "-d", "refs/agency/trash/x")
	}
	l.Must(ad.advance())
	for ref, want := range map[string]string{"free": to, "main": ad.a.Old, "refs/agency/trash/x": to} {
		if got := l.Git("rev-parse", ref); got != want {
			t.Errorf("%s is at %s", ref, got)
		}
	}
	if got := l.Git("reflog", "-1", "--format=%gs", "free"); got != "land" {
		t.Errorf("its log says %q", got)
	}
	if done, err := Recover(t.Context(), ad.repo, ad.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	l.Git("update-ref", "refs/heads/free", ad.a.Old)
	l.WriteIn(l.Root, ".git/refs/heads/free.lock", to+"\n")
	if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	ad.unlocked()
	l.Git("symbolic-ref", "refs/heads/free", "refs/heads/main")
	if _, err := Begin(t.Context(), ad.repo, ad.a); err == nil {
		t.Error("a ref that stands for another was taken for one of its own")
	}
}

// The index is locked for good, and staged things that came between the dry run and the lock count.
func TestAdvanceLooksAgainWhenTheIndexHasChanged(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	x, err := Begin(t.Context(), ad.repo, ad.a)
	l.Must(err)
	l.Write("staged.new", "staged\n")
	l.Git("add", "staged.new")
	status := ad.status()
	l.Must(x.Lock(t.Context()))
	if _, err := l.TryGit(l.Root, "add", "staged.new"); err == nil {
		t.Error("somebody else could stage something")
	}
	for _, name := range steps[1:] {
		l.Must(ad.step(x, name))
	}
	l.Must(x.Close())
	ad.landed(status)

	ad = newAdvancer(gittest.New(t), "")
	ad.a.New = varied(ad.Lab)
	ad.a.Old = ad.Git("rev-parse", "main")
	x, err = Begin(t.Context(), ad.repo, ad.a)
	ad.Must(err)
	ad.Write("a.txt", "mine\n")
	ad.Git("add", "a.txt")
	before := ad.sum()
	if err := x.Lock(t.Context()); over(err) != "a.txt staged" {
		t.Errorf("%v", err)
	}
	ad.Must(x.Close())
	gittest.RequireSame(t, "refused", ad.sum(), before)
}

// What git could not yet tell from what it had staged, because both are as old as the index, it can tell afterwards.
func TestAdvanceKeepsWhatTheIndexIsNotSureOf(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	path := filepath.Join(l.Root, "keep.txt")
	// A change of the same size, at the same moment as the index: only the content tells.
	fi, err := os.Lstat(path)
	l.Must(err)
	l.Git("config", "core.trustCtime", "false")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	l.Must(err)
	_, err = f.WriteString("KEEP.TXT\n")
	l.Must(errors.Join(err, f.Close()))
	l.Must(os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	l.Must(os.Chtimes(filepath.Join(l.Root, ".git/index"), fi.ModTime(), fi.ModTime()))
	if got, err := l.TryGit(l.Root, "--no-optional-locks", "diff", "--name-only"); got != "keep.txt\n" {
		t.Fatalf("%q, %v", got, err)
	}
	l.Must(ad.advance())
	if got := l.Git("diff", "--name-only"); got != "keep.txt" {
		t.Errorf("changed is %q", got)
	}
}

// The index stays readable for whom it was, and a tree on another file system is no obstacle.
func TestAdvanceOnAnotherFileSystemAndForAGroup(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := varied(l)
	l.Git("checkout", "-q", "--detach")
	shm, err := os.MkdirTemp("/dev/shm", "advance-")
	if err != nil {
		t.Skip("there is no other file system here")
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	tree := filepath.Join(shm, "tree")
	l.Git("config", "core.sharedRepository", "group")
	l.Git("worktree", "add", "-q", tree, "main")
	l.WriteIn(l.Root, ".git/info/exclude", "/.agency/\n")
	ad := &advancer{Lab: l, repo: repotest.OpenRepo(l), tree: tree}
	ad.a = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to}
	ad.a.GitDir, ad.a.Worktree, err = CheckedOutIn(t.Context(), ad.repo, ad.a.Branch)
	l.Must(err)
	index := filepath.Join(ad.a.GitDir, "index")
	was, err := os.Lstat(index)
	l.Must(err)
	before := ad.sum()
	x, _, err := ad.until("commit")
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.Must(x.closeUpdateRef())
	if done, err := Recover(t.Context(), ad.repo, ad.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	gittest.RequireSame(t, "killed", ad.sum(), before)
	l.Must(ad.advance())
	ad.landed("")
	if now, err := os.Lstat(index); err != nil || now.Mode() != was.Mode() || was.Mode()&0o060 != 0o060 {
		t.Errorf("it was %v and is %v, %v", was.Mode(), now.Mode(), err)
	}
	if gittest.Exists(filepath.Join(tree, ".agency")) {
		t.Error("something is left in the tree")
	}
}

// Promise: a branch that somebody checks out after it was asked who has it does not move under them.
func TestAdvanceLooksAgainWhoHasTheBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	old := l.Git("rev-parse", "HEAD")
	l.Git("commit", "-q", "--allow-empty", "-m", "next")
	next := l.Git("rev-parse", "HEAD")
	l.Git("reset", "-q", "--hard", old)
	l.Git("branch", "free")
	repo := repotest.OpenRepo(l)
	x, err := Begin(t.Context(), repo, Update{Branch: "refs/heads/free", Old: old, New: next})
	l.Must(err)
	l.Must(x.Lock(t.Context()))
	l.Git("checkout", "-q", "free")
	var moved *CheckoutMovedError
	if err := x.Prepare(t.Context()); !errors.As(err, &moved) || moved.Worktree != l.Root {
		t.Errorf("it was prepared under who has it checked out: %v", err)
	}
	l.Must(x.Undo(t.Context()))
	l.Must(x.Close())
	if got := l.Git("rev-parse", "free"); got != old {
		t.Errorf("it has moved to %s", got)
	}
}
