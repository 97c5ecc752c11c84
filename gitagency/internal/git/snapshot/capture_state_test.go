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
)

// captureStateOf freezes and checks what must hold whenever that is done.
func captureStateOf(l *gittest.Lab, repo *git.Repo, w git.Registration, previous string) string {
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
		l.T.Fatalf("%q is no commit", got)
	}
	return got
}

func trailerValue(l *gittest.Lab, commit, key string) string {
	l.T.Helper()
	return l.Git("log", "-1", "--format=%(trailers:key="+key+",valueonly,separator=%x2C)", commit)
}

// stagedTreeOf is what is staged in a worktree, as a tree.
func stagedTreeOf(l *gittest.Lab, w git.Registration) string {
	l.T.Helper()
	return l.GitIn(w.Tree, "write-tree")
}

func TestAFrozenStateHoldsEverythingAndFollowsTheOneBefore(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	base := l.Git("rev-parse", "main")

	// A state that is just the base is one too.
	none := captureStateOf(l, repo, w, "")
	gittest.RequireSame(t, "at first", l.Files(none), first)
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
	gittest.RequireSame(t, "with work", l.Files(work), with(map[string]string{
		".gitignore": "100644 ignored\n", "new/untracked": "100644 u\n", "staged": "100644 and changed again\n",
		"a.txt": "", "dir/b.txt": "100755 b\n", "link": "120000 elsewhere",
	}))
	parents := l.Parents(work)
	if len(parents) != 2 || parents[0] != none {
		t.Fatalf("parents %q", parents)
	}
	gittest.RequireSame(t, "staged", l.Files(parents[1]), with(map[string]string{"staged": "100644 s\n"}))
	if got := l.Git("rev-parse", parents[1]+"^{tree}"); got != trailerValue(l, work, indexTrailer) || got != stagedTreeOf(l, w) {
		t.Errorf("the index was %s, but %q is said", got, trailerValue(l, work, indexTrailer))
	}
	if head, base := trailerValue(l, work, headTrailer), trailerValue(l, work, "Agency-Base"); head != l.Git("rev-parse", "main") || base != "x" {
		t.Errorf("head %q, base %q", head, base)
	}

	// Commits come along, once.
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

func TestWhatHasNotChangedIsNotFrozenAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(l *gittest.Lab, w git.Registration)
		same   bool
	}{
		{"nothing", func(l *gittest.Lab, w git.Registration) {}, true},
		{"an ignored file", func(l *gittest.Lab, w git.Registration) { l.WriteIn(w.Tree, "ignored", "i\n") }, true},
		{"a marker", func(l *gittest.Lab, w git.Registration) { l.WriteIn(w.Tree, ".agency/x", "x\n") }, true},
		{"a date", func(l *gittest.Lab, w git.Registration) { l.WriteIn(w.Tree, "a.txt", "a\n") }, true},
		{"a branch left at the same commit", func(l *gittest.Lab, w git.Registration) { l.GitIn(w.Tree, "checkout", "-q", "--detach") }, false},
		{"content", func(l *gittest.Lab, w git.Registration) { l.WriteIn(w.Tree, "untracked", "v\n") }, false},
		{"a mode", func(l *gittest.Lab, w git.Registration) { l.Must(os.Chmod(filepath.Join(w.Tree, "a.txt"), 0o755)) }, false},
		{"only what is staged", func(l *gittest.Lab, w git.Registration) { l.GitIn(w.Tree, "add", "untracked") }, false},
		{"only what is not staged any more", func(l *gittest.Lab, w git.Registration) { l.GitIn(w.Tree, "reset", "-q") }, false},
		{"only HEAD", func(l *gittest.Lab, w git.Registration) { l.GitIn(w.Tree, "reset", "-q", "--soft", "HEAD~1") }, false},
		{"a commit of nothing", func(l *gittest.Lab, w git.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "empty")
		}, false},
		{"another commit of the same", func(l *gittest.Lab, w git.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--amend", "-m", "better said")
		}, false},
		{"only the branch", func(l *gittest.Lab, w git.Registration) {
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
				t.Errorf("%s after %s", after, before)
			}
			if c.same {
				return
			}
			if got := l.Parents(after); got[0] != before {
				t.Errorf("parents %q; want %s first", got, before)
			}
			for _, tip := range []string{l.GitIn(w.Tree, "rev-parse", "HEAD"), l.Git("rev-parse", w.Branch)} {
				if _, err := l.TryGit(l.Root, "merge-base", "--is-ancestor", tip, after); err != nil {
					t.Errorf("%s is not in it", tip)
				}
			}
			if got := captureStateOf(l, repo, w, after); got != after {
				t.Errorf("and %s once more", got)
			}
		})
	}
}

func TestAStateInTheMiddleOfAMergeIsFrozenWithBothSides(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	repotest.MakeConflict(l, w)
	got := captureStateOf(l, repo, w, "")
	held := trailerValue(l, got, operationTrailer)
	if want := []string{l.Git("rev-parse", "main"), l.GitIn(w.Tree, "rev-parse", "HEAD"), held}; !slices.Equal(l.Parents(got), want) {
		t.Errorf("parents %q; want %q", l.Parents(got), want)
	}
	if want := []string{l.Git("rev-parse", w.Branch)}; !slices.Equal(l.Parents(held), want) {
		t.Errorf("what is under way has parents %q; want %q", l.Parents(held), want)
	}
	if trailerValue(l, got, indexTrailer) != "" {
		t.Error("half a merge was written as an index")
	}
	if again := captureStateOf(l, repo, w, got); again != got {
		t.Error("nothing has changed, and it was frozen again")
	}
}

// What is given as the previous one may be a ref that somebody has pointed anywhere.
func TestAPreviousStateThatIsNoneIsPassedOver(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	for _, previous := range []string{l.Git("rev-parse", "main:a.txt"), l.Git("rev-parse", "main^{tree}"), "0123456789012345678901234567890123456789"} {
		if got := l.Parents(captureStateOf(l, repo, w, previous)); !slices.Equal(got, []string{l.Git("rev-parse", "main")}) {
			t.Errorf("%s: parents %q", previous, got)
		}
	}
	// One that holds the same tree but was not made by us is followed, not taken for ours.
	foreign := l.Git("commit-tree", "main^{tree}", "-p", "main", "-m", "x\n\nAgency-Head: "+l.Git("rev-parse", "main"))
	if got := l.Parents(captureStateOf(l, repo, w, foreign)); !slices.Equal(got, []string{foreign}) {
		t.Errorf("parents %q", got)
	}
}

func TestFreezingRefusesWhatItCannotReadAndLeavesItSo(t *testing.T) {
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
