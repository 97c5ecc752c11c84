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

func TestCheckedOutInFindsWorktreeOfBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "li\nnked")
	l.Git("worktree", "add", "-q", "-b", "other", linked)
	repo := repotest.OpenRepo(l)
	check := func(branch, wantDir, wantTree string) {
		t.Helper()
		dir, tree, err := CheckedOutIn(t.Context(), repo, "refs/heads/"+branch)
		if err != nil || dir != wantDir || tree != wantTree {
			t.Errorf("%s: %q, %q, %v", branch, dir, tree, err)
		}
	}
	l.Git("branch", "free")
	check("main", repo.CommonDir, l.Root)
	admin, err := git.DotGitTarget(linked)
	l.Must(err)
	check("other", admin, linked)
	check("free", "", "")

	checkBusy := func(what string) {
		t.Helper()
		var e *OperationInProgressError
		if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/other"); !errors.As(err, &e) || e.Operation != what || e.Worktree != linked {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.GitIn(linked, "commit", "-q", "--allow-empty", "-m", "x")
	l.GitIn(linked, "bisect", "start", "-q", "HEAD", "HEAD~1")
	l.GitIn(linked, "checkout", "-q", "--detach")
	checkBusy("bisect")
	l.GitIn(linked, "bisect", "reset")
	l.Env = append(l.Env, "GIT_SEQUENCE_EDITOR=sed -i 1ibreak")
	l.GitIn(linked, "rebase", "-q", "-i", "HEAD~1")
	checkBusy("rebase")
	l.GitIn(linked, "rebase", "--abort")

	// HEAD is a symbolic ref to another name of the branch.
	l.Git("symbolic-ref", "refs/heads/alias", "refs/heads/other")
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/alias")
	check("other", admin, linked)
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/main")
	for range 20 { // in the same order every time
		var many *MultipleCheckoutsError
		if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/main"); !errors.As(err, &many) || !slices.Equal(many.Worktrees, []string{l.Root, linked}) {
			t.Errorf("two checkouts: %v", err)
		}
	}
	l.GitIn(linked, "symbolic-ref", "HEAD", "refs/heads/other")
	l.Must(os.RemoveAll(linked))
	var lost *MissingWorktreeError
	if _, _, err := CheckedOutIn(t.Context(), repo, "refs/heads/other"); !errors.As(err, &lost) || lost.Worktree != linked {
		t.Errorf("removed worktree: %v", err)
	}
	check("main", repo.CommonDir, l.Root)

	// A bare repository has no main worktree, also when only config.worktree says that it is bare.
	bare := filepath.Join(gittest.TempDir(t), "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	repo = repotest.OpenRepoIn(l, bare)
	check("main", "", "")
	l.Git("config", "core.bare", "true")
	repo = repotest.OpenRepo(l)
	check("main", "", "")
	l.Git("config", "--unset", "core.bare")
	l.Git("config", "extensions.worktreeConfig", "true")
	l.WriteIn(l.Root, ".git/config.worktree", "[core]\n\tbare = true\n")
	l.Git("--git-dir="+filepath.Join(l.Root, ".git"), "worktree", "prune")
	again := filepath.Join(gittest.TempDir(t), "again")
	l.Git("--git-dir="+filepath.Join(l.Root, ".git"), "worktree", "add", "-q", again, "other")
	repo = repotest.OpenRepoIn(l, again)
	check("main", "", "")
	check("other", filepath.Join(l.Root, ".git/worktrees/again"), again)
}

func TestUpdateOfBranchWithoutWorktree(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := makeVariedCommit(l)
	l.Git("branch", "free")
	lab := &updateLab{Fixture: l, repo: repotest.OpenRepo(l), worktree: l.Root}
	zeros := strings.Repeat("0", len(to))
	lab.spec = Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "main"), New: to, Reason: "land"}
	lab.spec.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: to}}
	before := lab.diskState()

	tx, err := Begin(t.Context(), lab.repo, lab.spec)
	l.Must(err)
	l.Must(tx.Lock(t.Context()))
	l.Must(tx.Prepare(t.Context()))
	if _, err := l.TryGit(l.Root, "-c", "core.filesRefLockTimeout=0", "update-ref", "refs/heads/free", to); err == nil {
		t.Error("another git could move the branch")
	}
	l.Must(tx.Close())
	gittest.RequireSame(t, "closed", lab.diskState(), before)
	for _, m := range []struct {
		ref string
		do  func()
	}{
		{"refs/heads/free", func() { l.Git("update-ref", "refs/heads/free", to) }},
		{"refs/heads/free", func() { l.Git("update-ref", "-d", "refs/heads/free") }},
		{"refs/agency/trash/x", func() { l.Git("update-ref", "refs/agency/trash/x", to) }},
	} {
		tx, err := Begin(t.Context(), lab.repo, lab.spec)
		l.Must(err)
		m.do()
		l.Git("pack-refs", "--all")
		var e *MovedRefError
		if err := errors.Join(tx.Lock(t.Context()), tx.Prepare(t.Context())); !errors.As(err, &e) || e.Ref != m.ref {
			t.Errorf("%s: %v", m.ref, err)
		}
		if m.ref == lab.spec.Branch {
			l.Must(tx.Close())
		}
		l.Git("update-ref", "refs/heads/free", lab.spec.Old)
		l.Git("update-ref", "-d", "refs/agency/trash/x")
	}
	l.Must(lab.runAll())
	for ref, want := range map[string]string{"free": to, "main": lab.spec.Old, "refs/agency/trash/x": to} {
		if got := l.Git("rev-parse", ref); got != want {
			t.Errorf("%s is at %s", ref, got)
		}
	}
	if got := l.Git("reflog", "-1", "--format=%gs", "free"); got != "land" {
		t.Errorf("the reflog says %q", got)
	}
	if done, err := Recover(t.Context(), lab.repo, lab.spec); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	l.Git("update-ref", "refs/heads/free", lab.spec.Old)
	l.WriteIn(l.Root, ".git/refs/heads/free.lock", to+"\n")
	if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	lab.requireNoLeftovers()
	l.Git("symbolic-ref", "refs/heads/free", "refs/heads/main")
	if _, err := Begin(t.Context(), lab.repo, lab.spec); err == nil {
		t.Error("a symbolic ref was accepted as a branch")
	}
}

// Lock locks the index against other gits, and inspects an index again that changed since Begin.
func TestLockRechecksChangedIndex(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	tx, err := Begin(t.Context(), lab.repo, lab.spec)
	l.Must(err)
	l.Write("staged.new", "staged\n")
	l.Git("add", "staged.new")
	status := lab.status()
	l.Must(tx.Lock(t.Context()))
	if _, err := l.TryGit(l.Root, "add", "staged.new"); err == nil {
		t.Error("another git could change the index")
	}
	for _, name := range stepNames[1:] {
		l.Must(lab.runStep(tx, name))
	}
	l.Must(tx.Close())
	lab.requireLanded(status)

	lab = newUpdateLab(gittest.New(t), "")
	lab.spec.New = makeVariedCommit(lab.Fixture)
	lab.spec.Old = lab.Git("rev-parse", "main")
	tx, err = Begin(t.Context(), lab.repo, lab.spec)
	lab.Must(err)
	lab.Write("a.txt", "mine\n")
	lab.Git("add", "a.txt")
	before := lab.diskState()
	if err := tx.Lock(t.Context()); describeOverlaps(err) != "a.txt staged" {
		t.Errorf("%v", err)
	}
	lab.Must(tx.Close())
	gittest.RequireSame(t, "refused", lab.diskState(), before)
}

// A racily clean entry stays one: git still sees the change of a file that has the size and mtime of its index entry.
func TestUpdateKeepsRacilyCleanEntries(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	path := filepath.Join(l.Root, "keep.txt")
	// A change of the same size, with the mtime of the index: only the content differs.
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
	l.Must(lab.runAll())
	if got := l.Git("diff", "--name-only"); got != "keep.txt" {
		t.Errorf("git diff lists %q", got)
	}
}

// An update keeps the group permissions of the index, and works in a worktree on another file system than the repository.
func TestUpdateOnOtherFileSystemAndSharedRepository(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := makeVariedCommit(l)
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
	lab := &updateLab{Fixture: l, repo: repotest.OpenRepo(l), worktree: tree}
	lab.spec = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to}
	lab.spec.GitDir, lab.spec.Worktree, err = CheckedOutIn(t.Context(), lab.repo, lab.spec.Branch)
	l.Must(err)
	index := filepath.Join(lab.spec.GitDir, "index")
	was, err := os.Lstat(index)
	l.Must(err)
	before := lab.diskState()
	tx, _, err := lab.runUntil("commit")
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.Must(tx.closeUpdateRef())
	if done, err := Recover(t.Context(), lab.repo, lab.spec); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	gittest.RequireSame(t, "killed", lab.diskState(), before)
	l.Must(lab.runAll())
	lab.requireLanded("")
	if now, err := os.Lstat(index); err != nil || now.Mode() != was.Mode() || was.Mode()&0o060 != 0o060 {
		t.Errorf("the mode of the index was %v and is %v, %v", was.Mode(), now.Mode(), err)
	}
	if gittest.Exists(filepath.Join(tree, ".agency")) {
		t.Error("files are left in the worktree")
	}
}

// Promise: Prepare refuses to move a branch that was checked out after Begin found it free.
func TestPrepareRefusesBranchCheckedOutSinceBegin(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	old := l.Git("rev-parse", "HEAD")
	l.Git("commit", "-q", "--allow-empty", "-m", "next")
	next := l.Git("rev-parse", "HEAD")
	l.Git("reset", "-q", "--hard", old)
	l.Git("branch", "free")
	repo := repotest.OpenRepo(l)
	tx, err := Begin(t.Context(), repo, Update{Branch: "refs/heads/free", Old: old, New: next})
	l.Must(err)
	l.Must(tx.Lock(t.Context()))
	l.Git("checkout", "-q", "free")
	var moved *CheckoutMovedError
	if err := tx.Prepare(t.Context()); !errors.As(err, &moved) || moved.Worktree != l.Root {
		t.Errorf("Prepare accepted a branch that is checked out: %v", err)
	}
	l.Must(tx.Undo(t.Context()))
	l.Must(tx.Close())
	if got := l.Git("rev-parse", "free"); got != old {
		t.Errorf("the branch has moved to %s", got)
	}
}
