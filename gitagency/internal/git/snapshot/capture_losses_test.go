package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// A racily clean file is read: its index entry is as new as the index file, so that git does not trust its stat data.
// Capture copies the index. If the copy had a newer mtime, a file that changed in the second in which the index was
// written, and kept its size, would count as unchanged.
func TestCaptureReadsRacilyCleanFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.ConfigureGlobal("core.trustCtime", "false") // tests cannot set the ctime; in a real race it is in the same second too
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	second := time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)
	file, index := filepath.Join(w.Tree, "a.txt"), filepath.Join(repo.AdminDir(w.Name), "index")

	l.Must(os.Chtimes(file, second, second))
	l.GitIn(w.Tree, "update-index", "--refresh")
	l.Must(os.Chtimes(index, second, second))
	l.WriteIn(w.Tree, "a.txt", "A\n")
	l.Must(os.Chtimes(file, second, second))
	if status := l.GitIn(w.Tree, "--no-optional-locks", "status", "--porcelain"); !strings.Contains(status, "M a.txt") {
		t.Fatalf("git status does not see the change: %q", status)
	}

	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 A\n"}))
	if !got.Dirty {
		t.Error("the worktree counts as clean")
	}
}

// Capture reads files with the skip-worktree bit, in which git itself sees no changes. Files marked assume-unchanged are
// a case of TestCaptureKeepsAllFilesNotIgnored.
func TestCaptureReadsSkipWorktreeFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "update-index", "--skip-worktree", "a.txt")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
	if !got.Dirty {
		t.Error("the worktree counts as clean")
	}
}

// Content that was staged, and then changed on disk, is only in the index. It must not be lost because of the format of
// the index, or because of a flag of another file.
func TestCaptureKeepsStagedContentOfUnusualIndex(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture, w worktree.Registration){
		"other file assume-unchanged": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "update-index", "--assume-unchanged", "dir/b.txt")
		},
		"split index": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "update-index", "--split-index")
			shared, err := filepath.Glob(filepath.Join(l.Root, ".git/worktrees", w.Name, "sharedindex.*"))
			if l.Must(err); len(shared) == 0 {
				l.T.Fatal("the index is not split")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, "a.txt", "staged\n")
			l.GitIn(w.Tree, "add", "a.txt")
			l.WriteIn(w.Tree, "a.txt", "worked on\n")
			arrange(l, w)
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			parents := l.Parents(got.Commit)
			if len(parents) != 2 {
				t.Fatalf("the staged content is lost; parents are %v", parents)
			}
			gittest.RequireSame(t, "staged", l.Files(parents[1]), initialFilesWith(map[string]string{"a.txt": "100644 staged\n"}))
		})
	}
}

// A capture of a sparse checkout with an assume-unchanged file deletes no files. If Capture replaced the index by HEAD, it
// would lose the information which files are not checked out on purpose.
func TestCaptureSparseAssumeUnchangedDeletesNothing(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "sparse-checkout", "set", "--cone", "nothing-here")
	l.GitIn(w.Tree, "update-index", "--assume-unchanged", "a.txt")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFiles)
	if got.Dirty {
		t.Error("a clean worktree counts as dirty")
	}
}

// Dirty is set when only the index differs from HEAD: it decides whether "worktree rm" needs --force.
func TestCaptureIsDirtyWithOnlyStagedChanges(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "staged\n")
	l.GitIn(w.Tree, "add", "a.txt")
	l.WriteIn(w.Tree, "a.txt", "a\n") // the file on disk equals HEAD again
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	if parents := l.Parents(got.Commit); len(parents) != 2 || !got.Dirty {
		t.Errorf("got %+v with parents %v; no other commit holds the staged content", got, parents)
	}
}

// Files in the directory of an uninitialized submodule are captured, or refused. In a new worktree that directory is
// empty and has no .git; git ignores files that are added there: neither status nor add sees them.
func TestCaptureKeepsFilesInUninitializedSubmodule(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("rev-parse", "HEAD")+",sub")
	l.Git("commit", "-q", "-m", "a submodule")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	if got := captureSpec(l, repo, repotest.SpecOf(l, w)); got.Dirty || got.Commit != got.BranchTip {
		t.Errorf("an empty submodule counts as changed: %+v", got)
	}
	l.WriteIn(w.Tree, "sub/precious", "p\n")
	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	if errors.As(err, new(*status.NestedRepositoryError)) {
		return // a refusal is safe
	}
	l.Must(err)
	if l.Files(got.Commit)["sub/precious"] != "100644 p\n" {
		t.Errorf("the file is in no commit, without an error; dirty is %v: %q", got.Dirty, l.Files(got.Commit))
	}
}

// Capture refuses a worktree whose .git file was replaced by a repository: its history would be deleted with the worktree.
func TestCaptureRefusesGitFileReplacedByRepository(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.Must(os.Remove(filepath.Join(w.Tree, ".git")))
	l.GitIn(w.Tree, "init", "-q")
	l.WriteIn(w.Tree, "precious", "p\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "precious")
	l.GitIn(w.Tree, "rm", "-q", "precious")
	l.GitIn(w.Tree, "commit", "-q", "-m", "gone")
	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	if !errors.As(err, new(*status.NestedRepositoryError)) {
		t.Errorf("got %+v, %v; two commits in %s/.git are lost", got, err, w.Tree)
	}
}

// Commits that only files below .git/worktrees/<name> refer to are kept: they would be lost with that directory.
func TestCaptureKeepsCommitsOfOperationInProgress(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture, tree string) (commit string){
		"autostash of a stopped rebase": func(l *gittest.Fixture, tree string) string {
			l.Write("a.txt", "theirs\n")
			l.Commit("theirs")
			l.WriteIn(tree, "a.txt", "ours\n")
			l.GitIn(tree, "commit", "-q", "-am", "ours")
			l.WriteIn(tree, "dir/b.txt", "not committed\n")
			if out, err := l.TryGit(tree, "rebase", "--autostash", "main"); err == nil {
				l.T.Fatalf("no conflict: %s", out)
			}
			stash, err := os.ReadFile(filepath.Join(l.Root, ".git/worktrees", gittest.SandboxName, "rebase-merge/autostash"))
			l.Must(err)
			return strings.TrimSpace(string(stash))
		},
		"other side of a stopped merge": func(l *gittest.Fixture, tree string) string {
			l.Git("checkout", "-q", "-b", "fetched")
			l.Write("a.txt", "theirs\n")
			theirs := l.Commit("theirs")
			l.WriteIn(tree, "a.txt", "ours\n")
			l.GitIn(tree, "commit", "-q", "-am", "ours")
			if out, err := l.TryGit(tree, "merge", theirs); err == nil {
				l.T.Fatalf("no conflict: %s", out)
			}
			l.Git("checkout", "-q", "main")
			l.Git("branch", "-q", "-D", "fetched")
			return theirs
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			commit := arrange(l, w.Tree)
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			if _, err := l.TryGit(l.Root, "merge-base", "--is-ancestor", commit, got.Commit); err != nil {
				t.Errorf("%s is not reachable from the capture", l.Git("show", "-s", "--oneline", commit))
			}
		})
	}
}

// On a case-sensitive file system a directory whose name differs from the marker directory's in case is captured.
func TestCaptureExcludesMarkerCaseSensitively(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".Agency/mine", "m\n")
	if gittest.Exists(filepath.Join(w.Tree, ".agency")) {
		t.Skip("skipped: this file system is not case-sensitive")
	}
	l.Must(os.MkdirAll(filepath.Join(w.Tree, ".agency"), 0o755))
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{".Agency/mine": "100644 m\n"}))
}

// Capture fails, or keeps the commits of a detached HEAD, when it may not read HEAD. If it used the branch instead, they
// would be lost.
func TestCaptureWithUnreadableHeadLosesNoCommits(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "checkout", "-q", "--detach")
	l.WriteIn(w.Tree, "new", "n\n")
	l.GitIn(w.Tree, "add", "-A")
	l.GitIn(w.Tree, "commit", "-q", "-m", "detached")
	head := l.GitIn(w.Tree, "rev-parse", "HEAD")
	l.Must(os.Chmod(filepath.Join(repo.AdminDir(w.Name), "HEAD"), 0))
	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	if err != nil {
		return // a refusal is safe
	}
	if _, err := l.TryGit(l.Root, "merge-base", "--is-ancestor", head, got.Commit); err != nil {
		t.Errorf("the commit %s of the detached HEAD is not in %s", head, got.Commit)
	}
}

// Capture treats an index that it may not read like a corrupt one: it captures the files on disk.
func TestCaptureWithUnreadableIndex(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	l.Must(os.Chmod(filepath.Join(repo.AdminDir(w.Name), "index"), 0))
	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	l.Must(err)
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
}

// No commit that Capture makes holds a staged marker, neither the one of the files on disk nor the one of the index.
func TestCaptureExcludesStagedMarkerFromAllCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.GitIn(w.Tree, "add", "-f", ".agency")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	for commit := range strings.FieldsSeq(l.Git("rev-list", got.Commit)) {
		if _, have := l.Files(commit)[".agency/SANDBOX_MARKER"]; have {
			t.Errorf("%s holds the marker", commit)
		}
	}
	if parents := l.Parents(got.Commit); len(parents) != 1 {
		t.Errorf("only the marker was staged, but the index has a commit: %v", parents)
	}
}

// Commit is empty when there is no worktree, no index, no branch and no HEAD.
func TestCaptureOfNothingMakesNoCommit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.Must(os.RemoveAll(w.Tree))
	l.Must(worktree.RemoveAdminDir(repo, w.Name))
	l.Git("update-ref", "-d", w.Branch)
	s := repotest.SpecOf(l, w)
	s.Dir = ""
	if got, err := Capture(t.Context(), repo, s); err != nil || got != (CaptureResult{}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A marker that was staged and then changed on disk is left out: git rm removes it from an index only with -f.
func TestCaptureExcludesMarkerStagedThenChanged(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(l *gittest.Fixture, tree string){
		"changed": func(l *gittest.Fixture, tree string) { l.WriteIn(tree, ".agency/SANDBOX_MARKER", "changed\n") },
		"deleted": func(l *gittest.Fixture, tree string) { l.Must(os.RemoveAll(filepath.Join(tree, ".agency"))) },
		"a directory": func(l *gittest.Fixture, tree string) {
			l.Must(os.Remove(filepath.Join(tree, ".agency/SANDBOX_MARKER")))
			l.WriteIn(tree, ".agency/SANDBOX_MARKER/x", "x\n")
		},
		"a link": func(l *gittest.Fixture, tree string) {
			l.Must(os.RemoveAll(filepath.Join(tree, ".agency")))
			l.Must(os.Symlink("dir", filepath.Join(tree, ".agency")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
			l.GitIn(w.Tree, "add", "-f", ".agency")
			after(l, w.Tree)
			l.WriteIn(w.Tree, "a.txt", "changed\n")
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
		})
	}
}

// A committed marker stays in the agent's commit, but Capture does not copy it into its own.
func TestCaptureExcludesCommittedMarker(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "# mark\n")
	l.GitIn(w.Tree, "add", "-f", ".agency")
	l.GitIn(w.Tree, "commit", "-q", "-m", "marker")
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "changed\n")
	l.GitIn(w.Tree, "add", "-f", ".agency")
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "changed again\n")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), initialFilesWith(map[string]string{"a.txt": "100644 changed\n"}))
}

// Capture records a file or symlink at the path of a submodule, and its absence, like any other change.
func TestCaptureRecordsReplacedSubmodule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(l *gittest.Fixture, tree string)
		want    string
	}{
		"a file":             {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "sub", "precious\n") }, "100644 precious\n"},
		"a dangling symlink": {func(l *gittest.Fixture, tree string) { l.Must(os.Symlink("nowhere", filepath.Join(tree, "sub"))) }, "120000 nowhere"},
		"nothing":            {func(*gittest.Fixture, string) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("rev-parse", "HEAD")+",sub")
			l.Git("commit", "-q", "-m", "a submodule")
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.Must(os.Remove(filepath.Join(w.Tree, "sub")))
			c.arrange(l, w.Tree)
			got := captureSpec(l, repo, repotest.SpecOf(l, w))
			if is := l.Files(got.Commit)["sub"]; is != c.want || !got.Dirty {
				t.Errorf("got %q, want %q; dirty is %v", is, c.want, got.Dirty)
			}
		})
	}
}

// Capture and CaptureState refuse files that git add skips, because their names are not allowed in an index: git add
// still exits with status 0.
func TestCaptureRefusesFilesGitAddSkips(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(l *gittest.Fixture, tree string)
	}{
		{".gitmodules", func(l *gittest.Fixture, tree string) {
			l.Must(os.Symlink("elsewhere", filepath.Join(tree, ".gitmodules")))
		}},
		{"git~1", func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "git~1", "precious\n") }},
		{"dir/.GIT", func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "dir/.GIT", "precious\n") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			c.make(l, w.Tree)
			if got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w)); err == nil {
				t.Errorf("captured without it: %q", l.Files(got.Commit))
			}
			if got, err := CaptureState(t.Context(), repo, repotest.SpecOf(l, w), ""); err == nil {
				t.Errorf("state captured without it: %q", l.Files(got.Commit))
			}
		})
	}
}
