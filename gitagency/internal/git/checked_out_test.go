package git

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSeatFindsTheWorktreeThatHasABranch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	linked := filepath.Join(tempDir(t), "li\nnked")
	l.git("worktree", "add", "-q", "-b", "other", linked)
	repo := l.open()
	seat := func(branch, wantDir, wantTree string) {
		t.Helper()
		dir, tree, err := repo.CheckedOutIn(t.Context(), "refs/heads/"+branch)
		if err != nil || dir != wantDir || tree != wantTree {
			t.Errorf("%s: %q, %q, %v", branch, dir, tree, err)
		}
	}
	l.git("branch", "free")
	seat("main", repo.CommonDir, l.dir)
	admin, err := DotGitTarget(linked)
	l.must(err)
	seat("other", admin, linked)
	seat("free", "", "")

	busy := func(what string) {
		t.Helper()
		var e *OperationInProgressError
		if _, _, err := repo.CheckedOutIn(t.Context(), "refs/heads/other"); !errors.As(err, &e) || e.Operation != what || e.Worktree != linked {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.in(linked, "commit", "-q", "--allow-empty", "-m", "x")
	l.in(linked, "bisect", "start", "-q", "HEAD", "HEAD~1")
	l.in(linked, "checkout", "-q", "--detach")
	busy("bisect")
	l.in(linked, "bisect", "reset")
	l.env = append(l.env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
	l.in(linked, "rebase", "-q", "-i", "HEAD~1")
	busy("rebase")
	l.in(linked, "rebase", "--abort")

	// By another name.
	l.git("symbolic-ref", "refs/heads/alias", "refs/heads/other")
	l.in(linked, "symbolic-ref", "HEAD", "refs/heads/alias")
	seat("other", admin, linked)
	l.in(linked, "symbolic-ref", "HEAD", "refs/heads/main")
	for range 20 { // in the same words every time
		var many *MultipleCheckoutsError
		if _, _, err := repo.CheckedOutIn(t.Context(), "refs/heads/main"); !errors.As(err, &many) || !slices.Equal(many.Worktrees, []string{l.dir, linked}) {
			t.Errorf("twice: %v", err)
		}
	}
	l.in(linked, "symbolic-ref", "HEAD", "refs/heads/other")
	l.must(os.RemoveAll(linked))
	var lost *MissingWorktreeError
	if _, _, err := repo.CheckedOutIn(t.Context(), "refs/heads/other"); !errors.As(err, &lost) || lost.Worktree != linked {
		t.Errorf("gone: %v", err)
	}
	seat("main", repo.CommonDir, l.dir)

	// A bare one has no tree, also when only its own settings say so.
	bare := filepath.Join(tempDir(t), "bare.git")
	l.git("clone", "-q", "--bare", ".", bare)
	repo = l.openIn(bare)
	seat("main", "", "")
	l.git("config", "core.bare", "true")
	repo = l.open()
	seat("main", "", "")
	l.git("config", "--unset", "core.bare")
	l.git("config", "extensions.worktreeConfig", "true")
	l.put(l.dir, ".git/config.worktree", "[core]\n\tbare = true\n")
	l.git("--git-dir="+filepath.Join(l.dir, ".git"), "worktree", "prune")
	again := filepath.Join(tempDir(t), "again")
	l.git("--git-dir="+filepath.Join(l.dir, ".git"), "worktree", "add", "-q", again, "other")
	repo = l.openIn(again)
	seat("main", "", "")
	seat("other", filepath.Join(l.dir, ".git/worktrees/again"), again)
}

func TestAdvanceOfRefsAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := varied(l)
	l.git("branch", "free")
	ad := &advancer{lab: l, repo: l.open(), tree: l.dir}
	zeros := strings.Repeat("0", len(to))
	ad.a = Update{Branch: "refs/heads/free", Old: l.git("rev-parse", "main"), New: to, Reason: "land"}
	ad.a.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: to}}
	before := ad.sum()

	x, err := ad.repo.Begin(t.Context(), ad.a)
	l.must(err)
	l.must(x.Lock(t.Context()))
	l.must(x.Prepare(t.Context()))
	if _, err := l.try(l.dir, "-c", "core.filesRefLockTimeout=0", "update-ref", "refs/heads/free", to); err == nil {
		t.Error("somebody else could move it")
	}
	l.must(x.Close())
	requireSame(t, "given up", ad.sum(), before)
	for _, m := range []struct {
		ref string
		do  func()
	}{
		{"refs/heads/free", func() { l.git("update-ref", "refs/heads/free", to) }},
		{"refs/heads/free", func() { l.git("update-ref", "-d", "refs/heads/free") }},
		{"refs/agency/trash/x", func() { l.git("update-ref", "refs/agency/trash/x", to) }},
	} {
		x, err := ad.repo.Begin(t.Context(), ad.a)
		l.must(err)
		m.do()
		l.git("pack-refs", "--all")
		var e *MovedRefError
		if err := errors.Join(x.Lock(t.Context()), x.Prepare(t.Context())); !errors.As(err, &e) || e.Ref != m.ref {
			t.Errorf("%s: %v", m.ref, err)
		}
		if m.ref == ad.a.Branch {
			l.must(x.Close())
		}
		l.git("update-ref", "refs/heads/free", ad.a.Old)
		l.git("update-ref", "-d", "refs/agency/trash/x")
	}
	l.must(ad.advance())
	for ref, want := range map[string]string{"free": to, "main": ad.a.Old, "refs/agency/trash/x": to} {
		if got := l.git("rev-parse", ref); got != want {
			t.Errorf("%s is at %s", ref, got)
		}
	}
	if got := l.git("reflog", "-1", "--format=%gs", "free"); got != "land" {
		t.Errorf("its log says %q", got)
	}
	if done, err := ad.repo.Recover(t.Context(), ad.a); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	l.git("update-ref", "refs/heads/free", ad.a.Old)
	l.put(l.dir, ".git/refs/heads/free.lock", to+"\n")
	if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	ad.unlocked()
	l.git("symbolic-ref", "refs/heads/free", "refs/heads/main")
	if _, err := ad.repo.Begin(t.Context(), ad.a); err == nil {
		t.Error("a ref that stands for another was taken for one of its own")
	}
}

// The index is locked for good, and staged things that came between the dry run and the lock count.
func TestAdvanceLooksAgainWhenTheIndexHasChanged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	x, err := ad.repo.Begin(t.Context(), ad.a)
	l.must(err)
	l.write("staged.new", "staged\n")
	l.git("add", "staged.new")
	status := ad.status()
	l.must(x.Lock(t.Context()))
	if _, err := l.try(l.dir, "add", "staged.new"); err == nil {
		t.Error("somebody else could stage something")
	}
	for _, name := range steps[1:] {
		l.must(ad.step(x, name))
	}
	l.must(x.Close())
	ad.landed(status)

	ad = newAdvancer(newLab(t), "")
	ad.a.New = varied(ad.lab)
	ad.a.Old = ad.git("rev-parse", "main")
	x, err = ad.repo.Begin(t.Context(), ad.a)
	ad.must(err)
	ad.write("a.txt", "mine\n")
	ad.git("add", "a.txt")
	before := ad.sum()
	if err := x.Lock(t.Context()); over(err) != "a.txt staged" {
		t.Errorf("%v", err)
	}
	ad.must(x.Close())
	requireSame(t, "refused", ad.sum(), before)
}

// What git could not yet tell from what it had staged, because both are as old as the index, it can tell afterwards.
func TestAdvanceKeepsWhatTheIndexIsNotSureOf(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	path := filepath.Join(l.dir, "keep.txt")
	// A change of the same size, at the same moment as the index: only the content tells.
	fi, err := os.Lstat(path)
	l.must(err)
	l.git("config", "core.trustCtime", "false")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteString("KEEP.TXT\n")
	l.must(errors.Join(err, f.Close()))
	l.must(os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	l.must(os.Chtimes(filepath.Join(l.dir, ".git/index"), fi.ModTime(), fi.ModTime()))
	if got, err := l.try(l.dir, "--no-optional-locks", "diff", "--name-only"); got != "keep.txt\n" {
		t.Fatalf("%q, %v", got, err)
	}
	l.must(ad.advance())
	if got := l.git("diff", "--name-only"); got != "keep.txt" {
		t.Errorf("changed is %q", got)
	}
}

// The index stays readable for whom it was, and a tree on another file system is no obstacle.
func TestAdvanceOnAnotherFileSystemAndForAGroup(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := varied(l)
	l.git("checkout", "-q", "--detach")
	shm, err := os.MkdirTemp("/dev/shm", "advance-")
	if err != nil {
		t.Skip("there is no other file system here")
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	tree := filepath.Join(shm, "tree")
	l.git("config", "core.sharedRepository", "group")
	l.git("worktree", "add", "-q", tree, "main")
	l.put(l.dir, ".git/info/exclude", "/.agency/\n")
	ad := &advancer{lab: l, repo: l.open(), tree: tree}
	ad.a = Update{Branch: "refs/heads/main", Old: l.git("rev-parse", "main"), New: to}
	ad.a.GitDir, ad.a.Worktree, err = ad.repo.CheckedOutIn(t.Context(), ad.a.Branch)
	l.must(err)
	index := filepath.Join(ad.a.GitDir, "index")
	was, err := os.Lstat(index)
	l.must(err)
	before := ad.sum()
	x, _, err := ad.until("commit")
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.must(x.closeUpdateRef())
	if done, err := ad.repo.Recover(t.Context(), ad.a); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	requireSame(t, "killed", ad.sum(), before)
	l.must(ad.advance())
	ad.landed("")
	if now, err := os.Lstat(index); err != nil || now.Mode() != was.Mode() || was.Mode()&0o060 != 0o060 {
		t.Errorf("it was %v and is %v, %v", was.Mode(), now.Mode(), err)
	}
	if exists(filepath.Join(tree, ".agency")) {
		t.Error("something is left in the tree")
	}
}

// Promise: a branch that somebody checks out after it was asked who has it does not move under them.
func TestAdvanceLooksAgainWhoHasTheBranch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	old := l.git("rev-parse", "HEAD")
	l.git("commit", "-q", "--allow-empty", "-m", "next")
	next := l.git("rev-parse", "HEAD")
	l.git("reset", "-q", "--hard", old)
	l.git("branch", "free")
	repo := l.open()
	x, err := repo.Begin(t.Context(), Update{Branch: "refs/heads/free", Old: old, New: next})
	l.must(err)
	l.must(x.Lock(t.Context()))
	l.git("checkout", "-q", "free")
	var moved *CheckoutMovedError
	if err := x.Prepare(t.Context()); !errors.As(err, &moved) || moved.Worktree != l.dir {
		t.Errorf("it was prepared under who has it checked out: %v", err)
	}
	l.must(x.Undo(t.Context()))
	l.must(x.Close())
	if got := l.git("rev-parse", "free"); got != old {
		t.Errorf("it has moved to %s", got)
	}
}
