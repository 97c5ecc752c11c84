package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// captureStateOf captures the state of a worktree and checks that this changed nothing in it and made a commit.
func captureStateOf(l *gittest.Fixture, repo *git.Repo, w worktree.Registration, previous string) string {
	l.T.Helper()
	s := repotest.SpecOf(l, w)
	s.Base, s.Message = l.Git("rev-parse", "main"), "frozen\n\nAgency-Base: x"
	var got string
	requireUntouched(l, repo, s, func() (err error) {
		f, err := CaptureState(l.T.Context(), repo, s, previous)
		got = f.Commit
		return err
	})
	if l.Git("cat-file", "-t", got) != "commit" {
		l.T.Fatalf("%q is not a commit", got)
	}
	return got
}

// trailerValue returns the values of a trailer of a commit, separated by commas.
func trailerValue(l *gittest.Fixture, commit, key string) string {
	l.T.Helper()
	return l.Git("log", "-1", "--format=%(trailers:key="+key+",valueonly,separator=%x2C)", commit)
}

// stagedTreeOf returns the tree of a worktree's index.
func stagedTreeOf(l *gittest.Fixture, w worktree.Registration) string {
	l.T.Helper()
	return l.GitIn(w.Tree, "write-tree")
}

func TestCaptureStateHoldsWorktreeAndLinksPrevious(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	base := l.Git("rev-parse", "main")

	// A worktree without changes has a state as well.
	none := captureStateOf(l, repo, w, "")
	gittest.RequireSame(t, "without changes", l.Files(none), initialFiles)
	if got := l.Parents(none); !slices.Equal(got, []string{base}) {
		t.Errorf("parents %q", got)
	}

	l.WriteIn(w.Tree, ".gitignore", "ignored\n")
	l.WriteIn(w.Tree, "ignored", "i\n")
	l.WriteIn(w.Tree, ".agency/SANDBOX_MARKER", "")
	l.WriteIn(w.Tree, "new/untracked", "u\n")
	l.WriteIn(w.Tree, "staged", "s\n")
	l.GitIn(w.Tree, "add", "staged")
	l.WriteIn(w.Tree, "staged", "and changed again\n")
	l.Must(os.Remove(filepath.Join(w.Tree, "a.txt")))
	l.Must(os.Chmod(filepath.Join(w.Tree, "dir/b.txt"), 0o755))
	l.Must(os.Remove(filepath.Join(w.Tree, "link")))
	l.Must(os.Symlink("elsewhere", filepath.Join(w.Tree, "link")))
	work := captureStateOf(l, repo, w, none)
	gittest.RequireSame(t, "with changes", l.Files(work), initialFilesWith(map[string]string{
		".gitignore": "100644 ignored\n", "new/untracked": "100644 u\n", "staged": "100644 and changed again\n",
		"a.txt": "", "dir/b.txt": "100755 b\n", "link": "120000 elsewhere",
	}))
	parents := l.Parents(work)
	if len(parents) != 2 || parents[0] != none {
		t.Fatalf("parents %q", parents)
	}
	gittest.RequireSame(t, "staged", l.Files(parents[1]), initialFilesWith(map[string]string{"staged": "100644 s\n"}))
	if got := l.Git("rev-parse", parents[1]+"^{tree}"); got != trailerValue(l, work, indexTrailer) || got != stagedTreeOf(l, w) {
		t.Errorf("the index is %s, but the trailer says %q", got, trailerValue(l, work, indexTrailer))
	}
	if head, base := trailerValue(l, work, headTrailer), trailerValue(l, work, "Agency-Base"); head != l.Git("rev-parse", "main") || base != "x" {
		t.Errorf("head %q, base %q", head, base)
	}

	// A new HEAD becomes a parent, once.
	l.GitIn(w.Tree, "commit", "-q", "-a", "-m", "work")
	head := l.GitIn(w.Tree, "rev-parse", "HEAD")
	committed := captureStateOf(l, repo, w, work)
	if got := l.Parents(committed); !slices.Equal(got, []string{work, head}) {
		t.Errorf("parents %q", got)
	}
	if got := trailerValue(l, committed, headTrailer); got != head {
		t.Errorf("head %q, want %s", got, head)
	}
	l.WriteIn(w.Tree, "more", "m\n")
	if got := l.Parents(captureStateOf(l, repo, w, committed)); !slices.Equal(got, []string{committed}) {
		t.Errorf("parents %q", got)
	}
}

func TestCaptureStateReusesUnchangedState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(l *gittest.Fixture, w worktree.Registration)
		same   bool
	}{
		{"nothing", func(l *gittest.Fixture, w worktree.Registration) {}, true},
		{"an ignored file", func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, "ignored", "i\n") }, true},
		{"a marker", func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, ".agency/x", "x\n") }, true},
		{"an mtime", func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, "a.txt", "a\n") }, true},
		{"HEAD detached at the same commit", func(l *gittest.Fixture, w worktree.Registration) { l.GitIn(w.Tree, "checkout", "-q", "--detach") }, false},
		{"content", func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, "untracked", "v\n") }, false},
		{"a mode", func(l *gittest.Fixture, w worktree.Registration) {
			l.Must(os.Chmod(filepath.Join(w.Tree, "a.txt"), 0o755))
		}, false},
		{"only the index, by add", func(l *gittest.Fixture, w worktree.Registration) { l.GitIn(w.Tree, "add", "untracked") }, false},
		{"only the index, by reset", func(l *gittest.Fixture, w worktree.Registration) { l.GitIn(w.Tree, "reset", "-q") }, false},
		{"only HEAD", func(l *gittest.Fixture, w worktree.Registration) { l.GitIn(w.Tree, "reset", "-q", "--soft", "HEAD~1") }, false},
		{"an empty commit", func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "empty")
		}, false},
		{"another commit with the same tree", func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--amend", "-m", "better said")
		}, false},
		{"only the branch", func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "checkout", "-q", "--detach")
			l.Git("update-ref", w.Branch, l.Git("commit-tree", "main^{tree}", "-m", "elsewhere"))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, ".gitignore", "ignored\n")
			l.WriteIn(w.Tree, "kept", "k\n")
			l.GitIn(w.Tree, "add", ".")
			l.GitIn(w.Tree, "commit", "-q", "-m", "work")
			l.WriteIn(w.Tree, "kept", "staged\n")
			l.GitIn(w.Tree, "add", "kept")
			l.WriteIn(w.Tree, "untracked", "u\n")
			before := captureStateOf(l, repo, w, "")
			c.change(l, w)
			after := captureStateOf(l, repo, w, before)
			if (after == before) != c.same {
				t.Errorf("got %s after %s, want the same: %t", after, before, c.same)
			}
			if c.same {
				return
			}
			if got := l.Parents(after); got[0] != before {
				t.Errorf("parents %q; want %s first", got, before)
			}
			for _, tip := range []string{l.GitIn(w.Tree, "rev-parse", "HEAD"), l.Git("rev-parse", w.Branch)} {
				if _, err := l.TryGit(l.Root, "merge-base", "--is-ancestor", tip, after); err != nil {
					t.Errorf("%s is not reachable from the state", tip)
				}
			}
			if got := captureStateOf(l, repo, w, after); got != after {
				t.Errorf("another state %s without a change", got)
			}
		})
	}
}

func TestCaptureStateDuringMergeKeepsBothSides(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	repotest.MakeConflict(l, w)
	got := captureStateOf(l, repo, w, "")
	operation := trailerValue(l, got, operationTrailer)
	if want := []string{l.Git("rev-parse", "main"), l.GitIn(w.Tree, "rev-parse", "HEAD"), operation}; !slices.Equal(l.Parents(got), want) {
		t.Errorf("parents %q; want %q", l.Parents(got), want)
	}
	if want := []string{l.Git("rev-parse", w.Branch)}; !slices.Equal(l.Parents(operation), want) {
		t.Errorf("the operation commit has parents %q; want %q", l.Parents(operation), want)
	}
	if trailerValue(l, got, indexTrailer) != "" {
		t.Error("an index with conflicts was written as a tree")
	}
	if again := captureStateOf(l, repo, w, got); again != got {
		t.Error("another state without a change")
	}
}

// CaptureState ignores a previous state that is no commit or does not exist: it may come from a ref that any process can
// move.
func TestCaptureStateIgnoresInvalidPrevious(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	for _, previous := range []string{l.Git("rev-parse", "main:a.txt"), l.Git("rev-parse", "main^{tree}"), "0123456789012345678901234567890123456789"} {
		if got := l.Parents(captureStateOf(l, repo, w, previous)); !slices.Equal(got, []string{l.Git("rev-parse", "main")}) {
			t.Errorf("%s: parents %q", previous, got)
		}
	}
	// A commit with the same tree that CaptureState did not make becomes the parent, but is not returned as the state.
	foreign := l.Git("commit-tree", "main^{tree}", "-p", "main", "-m", "x\n\nAgency-Head: "+l.Git("rev-parse", "main"))
	if got := l.Parents(captureStateOf(l, repo, w, foreign)); !slices.Equal(got, []string{foreign}) {
		t.Errorf("parents %q", got)
	}
}

func TestCaptureStateRefusesUnreadableDirectory(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	closed := filepath.Join(w.Tree, "dir")
	l.Must(os.Chmod(closed, 0))
	t.Cleanup(func() { l.Must(os.Chmod(closed, 0o755)) })
	if _, err := CaptureState(t.Context(), repo, repotest.SpecOf(l, w), ""); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if fi, err := os.Lstat(closed); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	repotest.RequireEmptyAgencyDir(l, repo)
}
