package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// freeze freezes and checks what must hold whenever that is done.
func (l *lab) freeze(repo *Repo, w Registration, previous string) string {
	l.t.Helper()
	s := l.subject(w)
	s.Base, s.Message = l.git("rev-parse", "main"), "frozen\n\nAgency-Base: x"
	var got string
	l.requireUntouched(repo, s, func() (err error) {
		f, err := repo.CaptureState(l.t.Context(), s, previous)
		got = f.Commit
		return err
	})
	if l.git("cat-file", "-t", got) != "commit" {
		l.t.Fatalf("%q is no commit", got)
	}
	return got
}

func (l *lab) trailer(commit, key string) string {
	l.t.Helper()
	return l.git("log", "-1", "--format=%(trailers:key="+key+",valueonly,separator=%x2C)", commit)
}

// index is what is staged in a worktree, as a tree.
func (l *lab) index(w Registration) string { l.t.Helper(); return l.in(w.Tree, "write-tree") }

func TestAFrozenStateHoldsEverythingAndFollowsTheOneBefore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	base := l.git("rev-parse", "main")

	// A state that is just the base is one too.
	none := l.freeze(repo, w, "")
	requireSame(t, "at first", l.files(none), first)
	if got := l.parents(none); !slices.Equal(got, []string{base}) {
		t.Errorf("parents %q", got)
	}

	l.put(w.Tree, ".gitignore", "ignored\n")
	l.put(w.Tree, "ignored", "i\n")
	l.put(w.Tree, ".agency/SANDBOX_MARKER", "")
	l.put(w.Tree, "new/untracked", "u\n")
	l.put(w.Tree, "staged", "s\n")
	l.in(w.Tree, "add", "staged")
	l.put(w.Tree, "staged", "and changed again\n")
	l.must(os.Remove(filepath.Join(w.Tree, "a.txt")))
	l.must(os.Chmod(filepath.Join(w.Tree, "dir/b.txt"), 0o755))
	l.must(os.Remove(filepath.Join(w.Tree, "link")))
	l.must(os.Symlink("elsewhere", filepath.Join(w.Tree, "link")))
	work := l.freeze(repo, w, none)
	requireSame(t, "with work", l.files(work), with(map[string]string{
		".gitignore": "100644 ignored\n", "new/untracked": "100644 u\n", "staged": "100644 and changed again\n",
		"a.txt": "", "dir/b.txt": "100755 b\n", "link": "120000 elsewhere",
	}))
	parents := l.parents(work)
	if len(parents) != 2 || parents[0] != none {
		t.Fatalf("parents %q", parents)
	}
	requireSame(t, "staged", l.files(parents[1]), with(map[string]string{"staged": "100644 s\n"}))
	if got := l.git("rev-parse", parents[1]+"^{tree}"); got != l.trailer(work, indexTrailer) || got != l.index(w) {
		t.Errorf("the index was %s, but %q is said", got, l.trailer(work, indexTrailer))
	}
	if head, base := l.trailer(work, headTrailer), l.trailer(work, "Agency-Base"); head != l.git("rev-parse", "main") || base != "x" {
		t.Errorf("head %q, base %q", head, base)
	}

	// Commits come along, once.
	l.in(w.Tree, "commit", "-q", "-a", "-m", "work")
	head := l.in(w.Tree, "rev-parse", "HEAD")
	committed := l.freeze(repo, w, work)
	if got := l.parents(committed); !slices.Equal(got, []string{work, head}) {
		t.Errorf("parents %q", got)
	}
	if got := l.trailer(committed, headTrailer); got != head {
		t.Errorf("head %q, want %s", got, head)
	}
	l.put(w.Tree, "more", "m\n")
	if got := l.parents(l.freeze(repo, w, committed)); !slices.Equal(got, []string{committed}) {
		t.Errorf("parents %q", got)
	}
}

func TestWhatHasNotChangedIsNotFrozenAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(l *lab, w Registration)
		same   bool
	}{
		{"nothing", func(l *lab, w Registration) {}, true},
		{"an ignored file", func(l *lab, w Registration) { l.put(w.Tree, "ignored", "i\n") }, true},
		{"a marker", func(l *lab, w Registration) { l.put(w.Tree, ".agency/x", "x\n") }, true},
		{"a date", func(l *lab, w Registration) { l.put(w.Tree, "a.txt", "a\n") }, true},
		{"a branch left at the same commit", func(l *lab, w Registration) { l.in(w.Tree, "checkout", "-q", "--detach") }, false},
		{"content", func(l *lab, w Registration) { l.put(w.Tree, "untracked", "v\n") }, false},
		{"a mode", func(l *lab, w Registration) { l.must(os.Chmod(filepath.Join(w.Tree, "a.txt"), 0o755)) }, false},
		{"only what is staged", func(l *lab, w Registration) { l.in(w.Tree, "add", "untracked") }, false},
		{"only what is not staged any more", func(l *lab, w Registration) { l.in(w.Tree, "reset", "-q") }, false},
		{"only HEAD", func(l *lab, w Registration) { l.in(w.Tree, "reset", "-q", "--soft", "HEAD~1") }, false},
		{"a commit of nothing", func(l *lab, w Registration) { l.in(w.Tree, "commit", "-q", "--allow-empty", "-m", "empty") }, false},
		{"another commit of the same", func(l *lab, w Registration) { l.in(w.Tree, "commit", "-q", "--amend", "-m", "better said") }, false},
		{"only the branch", func(l *lab, w Registration) {
			l.in(w.Tree, "checkout", "-q", "--detach")
			l.git("update-ref", w.Branch, l.git("commit-tree", "main^{tree}", "-m", "elsewhere"))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, ".gitignore", "ignored\n")
			l.put(w.Tree, "kept", "k\n")
			l.in(w.Tree, "add", ".")
			l.in(w.Tree, "commit", "-q", "-m", "work")
			l.put(w.Tree, "kept", "staged\n")
			l.in(w.Tree, "add", "kept")
			l.put(w.Tree, "untracked", "u\n")
			before := l.freeze(repo, w, "")
			c.change(l, w)
			after := l.freeze(repo, w, before)
			if (after == before) != c.same {
				t.Errorf("%s after %s", after, before)
			}
			if c.same {
				return
			}
			if got := l.parents(after); got[0] != before {
				t.Errorf("parents %q; want %s first", got, before)
			}
			for _, tip := range []string{l.in(w.Tree, "rev-parse", "HEAD"), l.git("rev-parse", w.Branch)} {
				if _, err := l.try(l.dir, "merge-base", "--is-ancestor", tip, after); err != nil {
					t.Errorf("%s is not in it", tip)
				}
			}
			if got := l.freeze(repo, w, after); got != after {
				t.Errorf("and %s once more", got)
			}
		})
	}
}

func TestAStateInTheMiddleOfAMergeIsFrozenWithBothSides(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.conflict(w)
	got := l.freeze(repo, w, "")
	held := l.trailer(got, operationTrailer)
	if want := []string{l.git("rev-parse", "main"), l.in(w.Tree, "rev-parse", "HEAD"), held}; !slices.Equal(l.parents(got), want) {
		t.Errorf("parents %q; want %q", l.parents(got), want)
	}
	if want := []string{l.git("rev-parse", w.Branch)}; !slices.Equal(l.parents(held), want) {
		t.Errorf("what is under way has parents %q; want %q", l.parents(held), want)
	}
	if l.trailer(got, indexTrailer) != "" {
		t.Error("half a merge was written as an index")
	}
	if again := l.freeze(repo, w, got); again != got {
		t.Error("nothing has changed, and it was frozen again")
	}
}

// What is given as the previous one may be a ref that somebody has pointed anywhere.
func TestAPreviousStateThatIsNoneIsPassedOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	for _, previous := range []string{l.git("rev-parse", "main:a.txt"), l.git("rev-parse", "main^{tree}"), "0123456789012345678901234567890123456789"} {
		if got := l.parents(l.freeze(repo, w, previous)); !slices.Equal(got, []string{l.git("rev-parse", "main")}) {
			t.Errorf("%s: parents %q", previous, got)
		}
	}
	// One that holds the same tree but was not made by us is followed, not taken for ours.
	foreign := l.git("commit-tree", "main^{tree}", "-p", "main", "-m", "x\n\nAgency-Head: "+l.git("rev-parse", "main"))
	if got := l.parents(l.freeze(repo, w, foreign)); !slices.Equal(got, []string{foreign}) {
		t.Errorf("parents %q", got)
	}
}

func TestFreezingRefusesWhatItCannotReadAndLeavesItSo(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	closed := filepath.Join(w.Tree, "dir")
	l.must(os.Chmod(closed, 0))
	t.Cleanup(func() { l.must(os.Chmod(closed, 0o755)) })
	if _, err := repo.CaptureState(t.Context(), l.subject(w), ""); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if fi, err := os.Lstat(closed); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	l.requireNothingBeside(repo)
}
