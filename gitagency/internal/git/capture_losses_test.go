package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Git believes the stat data in an index unless an entry is as young as the index file itself; then
// it reads the file. In a copy of the index that looks younger, a file that was changed in the second in
// which the index was written, and kept its size, would count as unchanged.
func TestCaptureSeesAChangeMadeInTheSecondTheIndexWasWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("core.trustCtime", "false") // the one time a test cannot set; a real change has it in the same second too
	repo := l.open()
	w := l.sandbox(repo)
	second := time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)
	file, index := filepath.Join(w.Tree, "a.txt"), filepath.Join(repo.AdminDir(w.Name), "index")

	l.must(os.Chtimes(file, second, second))
	l.in(w.Tree, "update-index", "--refresh")
	l.must(os.Chtimes(index, second, second))
	l.put(w.Tree, "a.txt", "A\n")
	l.must(os.Chtimes(file, second, second))
	if status := l.in(w.Tree, "--no-optional-locks", "status", "--porcelain"); !strings.Contains(status, "M a.txt") {
		t.Fatalf("git itself does not see the change: %q", status)
	}

	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 A\n"}))
	if !got.Dirty {
		t.Error("the tree counts as clean")
	}
}

// The sibling of assume-unchanged. Git itself does not see the change.
func TestCaptureSeesThroughSkipWorktree(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "update-index", "--skip-worktree", "a.txt")
	l.put(w.Tree, "a.txt", "changed\n")
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
	if !got.Dirty {
		t.Error("the tree counts as clean")
	}
}

// What was staged and changed again is only in the index. It must not be lost because of how the
// index is written, or because of a flag on some other file.
func TestCaptureKeepsWhatWasStagedWhateverTheIndexLooksLike(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab, w Registration){
		"another file is assume-unchanged": func(l *lab, w Registration) {
			l.in(w.Tree, "update-index", "--assume-unchanged", "dir/b.txt")
		},
		"the index is split": func(l *lab, w Registration) {
			l.in(w.Tree, "update-index", "--split-index")
			shared, err := filepath.Glob(filepath.Join(l.dir, ".git/worktrees", w.Name, "sharedindex.*"))
			if l.must(err); len(shared) == 0 {
				l.t.Fatal("the index is not split")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, "a.txt", "staged\n")
			l.in(w.Tree, "add", "a.txt")
			l.put(w.Tree, "a.txt", "worked on\n")
			arrange(l, w)
			got := l.capture(repo, l.subject(w))
			parents := l.parents(got.Commit)
			if len(parents) != 2 {
				t.Fatalf("what was staged is lost; the only parents are %v", parents)
			}
			requireSame(t, "staged", l.files(parents[1]), with(map[string]string{"a.txt": "100644 staged\n"}))
		})
	}
}

// An index replaced by HEAD would forget which files are not checked out on purpose.
func TestCaptureOfASparseTreeWithAnAssumedFileDeletesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "sparse-checkout", "set", "--cone", "nothing-here")
	l.in(w.Tree, "update-index", "--assume-unchanged", "a.txt")
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), first)
	if got.Dirty {
		t.Error("a clean tree counts as dirty")
	}
}

// Dirty decides whether "worktree rm" needs --force.
func TestCaptureCallsATreeDirtyThatHasOnlySomethingStaged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "staged\n")
	l.in(w.Tree, "add", "a.txt")
	l.put(w.Tree, "a.txt", "a\n") // on disk as in HEAD again
	got := l.capture(repo, l.subject(w))
	if parents := l.parents(got.Commit); len(parents) != 2 || !got.Dirty {
		t.Errorf("got %+v with parents %v; what was staged is in no other commit", got, parents)
	}
}

// In a new worktree the directory of a submodule is empty and has no .git. Git does not look at what
// somebody puts there: neither status nor add sees it.
func TestCaptureDoesNotLoseFilesInTheDirectoryOfASubmodule(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.git("update-index", "--add", "--cacheinfo", "160000,"+l.git("rev-parse", "HEAD")+",sub")
	l.git("commit", "-q", "-m", "a submodule")
	repo := l.open()
	w := l.sandbox(repo)
	if got := l.capture(repo, l.subject(w)); got.Dirty || got.Commit != got.BranchTip {
		t.Errorf("an empty submodule counts as changed: %+v", got)
	}
	l.put(w.Tree, "sub/precious", "p\n")
	got, err := repo.Capture(t.Context(), l.subject(w))
	if errors.As(err, new(*NestedRepositoryError)) {
		return // to refuse is safe
	}
	l.must(err)
	if l.files(got.Commit)["sub/precious"] != "100644 p\n" {
		t.Errorf("the file is in no commit, nobody was told, and dirty is %v: %q", got.Dirty, l.files(got.Commit))
	}
}

// Somebody removed the .git file and began a history of his own in its place. It would go with the tree.
func TestCaptureRefusesATreeWhoseGitFileBecameARepository(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.must(os.Remove(filepath.Join(w.Tree, ".git")))
	l.in(w.Tree, "init", "-q")
	l.put(w.Tree, "precious", "p\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "precious")
	l.in(w.Tree, "rm", "-q", "precious")
	l.in(w.Tree, "commit", "-q", "-m", "gone")
	got, err := repo.Capture(t.Context(), l.subject(w))
	if !errors.As(err, new(*NestedRepositoryError)) {
		t.Errorf("got %+v, %v; two commits in %s/.git are lost", got, err, w.Tree)
	}
}

// Work that only the worktree's own entry below .git/worktrees knows of would go with that entry.
func TestCaptureKeepsCommitsThatOnlyAnUnfinishedOperationKnowsOf(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab, tree string) (commit string){
		"the autostash of a rebase that stopped": func(l *lab, tree string) string {
			l.write("a.txt", "theirs\n")
			l.commit("theirs")
			l.put(tree, "a.txt", "ours\n")
			l.in(tree, "commit", "-q", "-am", "ours")
			l.put(tree, "dir/b.txt", "not committed\n")
			if out, err := l.try(tree, "rebase", "--autostash", "main"); err == nil {
				l.t.Fatalf("no conflict: %s", out)
			}
			stash, err := os.ReadFile(filepath.Join(l.dir, ".git/worktrees", sandboxName, "rebase-merge/autostash"))
			l.must(err)
			return strings.TrimSpace(string(stash))
		},
		"the other side of a merge that stopped": func(l *lab, tree string) string {
			l.git("checkout", "-q", "-b", "fetched")
			l.write("a.txt", "theirs\n")
			theirs := l.commit("theirs")
			l.put(tree, "a.txt", "ours\n")
			l.in(tree, "commit", "-q", "-am", "ours")
			if out, err := l.try(tree, "merge", theirs); err == nil {
				l.t.Fatalf("no conflict: %s", out)
			}
			l.git("checkout", "-q", "main")
			l.git("branch", "-q", "-D", "fetched")
			return theirs
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			commit := arrange(l, w.Tree)
			got := l.capture(repo, l.subject(w))
			if _, err := l.try(l.dir, "merge-base", "--is-ancestor", commit, got.Commit); err != nil {
				t.Errorf("%s is in no commit that stays", l.git("show", "-s", "--oneline", commit))
			}
		})
	}
}

// On a file system that tells letter cases apart, another case is another directory, and somebody's.
func TestCaptureLeavesOutOnlyTheNameItWasGiven(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, ".Agency/mine", "m\n")
	if exists(filepath.Join(w.Tree, ".agency")) {
		t.Skip("skipped: this file system does not tell letter cases apart")
	}
	l.must(os.MkdirAll(filepath.Join(w.Tree, ".agency"), 0o755))
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{".Agency/mine": "100644 m\n"}))
}

// Were the branch taken for a HEAD that cannot be read, the commits of a detached HEAD would be lost.
func TestCaptureDoesNotTakeAHeadItMayNotReadForNone(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "checkout", "-q", "--detach")
	l.put(w.Tree, "new", "n\n")
	l.in(w.Tree, "add", "-A")
	l.in(w.Tree, "commit", "-q", "-m", "detached")
	head := l.in(w.Tree, "rev-parse", "HEAD")
	l.must(os.Chmod(filepath.Join(repo.AdminDir(w.Name), "HEAD"), 0))
	got, err := repo.Capture(t.Context(), l.subject(w))
	if err != nil {
		return // to refuse is safe
	}
	if _, err := l.try(l.dir, "merge-base", "--is-ancestor", head, got.Commit); err != nil {
		t.Errorf("the commit %s of the detached HEAD is not in %s", head, got.Commit)
	}
}

// A tree whose permissions were taken away is captured; its index must not be worse than a corrupt one.
func TestCaptureWorksWithAnIndexItMayNotRead(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "changed\n")
	l.must(os.Chmod(filepath.Join(repo.AdminDir(w.Name), "index"), 0))
	got, err := repo.Capture(t.Context(), l.subject(w))
	l.must(err)
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
}

// Out of what is on disk, and out of what was staged too.
func TestCaptureLeavesAStagedMarkerOutOfEveryCommitItMakes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.in(w.Tree, "add", "-f", ".agency")
	l.put(w.Tree, "a.txt", "changed\n")
	got := l.capture(repo, l.subject(w))
	for commit := range strings.FieldsSeq(l.git("rev-list", got.Commit)) {
		if _, have := l.files(commit)[".agency/SANDBOX_MARKER"]; have {
			t.Errorf("%s holds the marker", commit)
		}
	}
	if parents := l.parents(got.Commit); len(parents) != 1 {
		t.Errorf("nothing but the marker was staged, and yet it has a commit: %v", parents)
	}
}

// "Commit … empty when there was nothing": no tree, no index, no branch, no HEAD.
func TestCaptureOfNothingIsNoCommit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.must(os.RemoveAll(w.Tree))
	l.must(repo.RemoveAdminDir(w.Name))
	l.git("update-ref", "-d", w.Branch)
	s := l.subject(w)
	s.Dir = ""
	if got, err := repo.Capture(t.Context(), s); err != nil || got != (CaptureResult{}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Staged, and then changed on disk: git rm wants to be forced.
func TestCaptureLeavesAMarkerOutThatWasStagedAndChangedAgain(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(l *lab, tree string){
		"changed": func(l *lab, tree string) { l.put(tree, ".agency/SANDBOX_MARKER", "changed\n") },
		"deleted": func(l *lab, tree string) { l.must(os.RemoveAll(filepath.Join(tree, ".agency"))) },
		"a directory": func(l *lab, tree string) {
			l.must(os.Remove(filepath.Join(tree, ".agency/SANDBOX_MARKER")))
			l.put(tree, ".agency/SANDBOX_MARKER/x", "x\n")
		},
		"a link": func(l *lab, tree string) {
			l.must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.must(os.Symlink("dir", filepath.Join(tree, ".agency")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
			l.in(w.Tree, "add", "-f", ".agency")
			after(l, w.Tree)
			l.put(w.Tree, "a.txt", "changed\n")
			got := l.capture(repo, l.subject(w))
			requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
		})
	}
}

// Committed, it is part of what the agent made; the capture does not carry it on.
func TestCaptureDoesNotCarryACommittedMarkerOn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.in(w.Tree, "add", "-f", ".agency")
	l.in(w.Tree, "commit", "-q", "-m", "marker")
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "changed\n")
	l.in(w.Tree, "add", "-f", ".agency")
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "changed again\n")
	l.put(w.Tree, "a.txt", "changed\n")
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), with(map[string]string{"a.txt": "100644 changed\n"}))
}

// What lies where git expects a submodule, and is no directory, is a change like any other.
func TestCaptureSeesWhatASubmoduleBecame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(l *lab, tree string)
		want    string
	}{
		"a file":              {func(l *lab, tree string) { l.put(tree, "sub", "precious\n") }, "100644 precious\n"},
		"a link that is dead": {func(l *lab, tree string) { l.must(os.Symlink("nowhere", filepath.Join(tree, "sub"))) }, "120000 nowhere"},
		"nothing":             {func(*lab, string) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.git("update-index", "--add", "--cacheinfo", "160000,"+l.git("rev-parse", "HEAD")+",sub")
			l.git("commit", "-q", "-m", "a submodule")
			repo := l.open()
			w := l.sandbox(repo)
			l.must(os.Remove(filepath.Join(w.Tree, "sub")))
			c.arrange(l, w.Tree)
			got := l.capture(repo, l.subject(w))
			if is := l.files(got.Commit)["sub"]; is != c.want || !got.Dirty {
				t.Errorf("got %q, want %q; dirty is %v", is, c.want, got.Dirty)
			}
		})
	}
}

// Git passes over what it will not have in an index, and says so to nobody who only looks at how it ended.
func TestCaptureRefusesWhatGitPassesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(l *lab, tree string)
	}{
		{".gitmodules", func(l *lab, tree string) { l.must(os.Symlink("elsewhere", filepath.Join(tree, ".gitmodules"))) }},
		{"git~1", func(l *lab, tree string) { l.put(tree, "git~1", "precious\n") }},
		{"dir/.GIT", func(l *lab, tree string) { l.put(tree, "dir/.GIT", "precious\n") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			c.make(l, w.Tree)
			if got, err := repo.Capture(t.Context(), l.subject(w)); err == nil {
				t.Errorf("captured without it: %q", l.files(got.Commit))
			}
			if got, err := repo.CaptureState(t.Context(), l.subject(w), ""); err == nil {
				t.Errorf("frozen without it: %q", l.files(got.Commit))
			}
		})
	}
}
