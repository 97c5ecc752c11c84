package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// rehearse rehearses and checks that nothing at all is different afterwards, neither in the tree nor in
// the whole repository.
func (l *lab) rehearse(repo *Repo, s WorktreeSpec) (CaptureResult, error) {
	l.t.Helper()
	paths := []string{repo.CommonDir}
	if s.Dir != "" {
		paths = append(paths, s.Dir)
	}
	before := states(l.t, paths...)
	var got CaptureResult
	var err error
	within(l.t, "Rehearse", func() { got, err = repo.DryRunCapture(l.t.Context(), s) })
	requireSame(l.t, "afterwards", states(l.t, paths...), before)
	return got, err
}

func TestRehearseFindsWhatCaptureFindsAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(l *lab, w Registration){
		"nothing":           func(*lab, Registration) {},
		"an untracked file": func(l *lab, w Registration) { l.put(w.Tree, "new", "n\n") },
		"a changed file":    func(l *lab, w Registration) { l.put(w.Tree, "a.txt", "changed\n") },
		"an ignored file": func(l *lab, w Registration) {
			l.write(".git/info/exclude", "/ignored\n")
			l.put(w.Tree, "ignored", "i\n")
		},
		"a staged file that is gone": func(l *lab, w Registration) {
			l.put(w.Tree, "staged", "s\n")
			l.in(w.Tree, "add", "staged")
			l.must(os.Remove(filepath.Join(w.Tree, "staged")))
		},
		"a commit":                func(l *lab, w Registration) { l.in(w.Tree, "commit", "-q", "--allow-empty", "-m", "more") },
		"a commit beside":         func(l *lab, w Registration) { l.in(w.Tree, "checkout", "-q", "--orphan", "beside") },
		"a commit that was reset": func(l *lab, w Registration) { l.in(w.Tree, "commit", "-q", "--amend", "-m", "again") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			earlier := l.capture(repo, l.subject(w))
			work(l, w)
			for _, onto := range []string{"", earlier.Commit} {
				s := l.subject(w)
				s.Onto = onto
				rehearsed, err := l.rehearse(repo, s)
				l.must(err)
				captured := l.capture(repo, s)
				if rehearsed.Dirty != captured.Dirty || rehearsed.BranchTip != captured.BranchTip ||
					(rehearsed.Commit == earlier.Commit) != (captured.Commit == earlier.Commit) {
					t.Errorf("onto %q: rehearsed %+v, captured %+v", onto, rehearsed, captured)
				}
			}
		})
	}
}

func TestRehearseRefusesWhatCaptureRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "init", "-q", "nested")
	if _, err := l.rehearse(repo, l.subject(w)); !errors.As(err, new(*NestedRepositoryError)) {
		t.Errorf("a repository in it: %v", err)
	}
	l.must(os.RemoveAll(filepath.Join(w.Tree, "nested")))
	fifo(t, filepath.Join(w.Tree, "dir", ".gitattributes"))
	if _, err := l.rehearse(repo, l.subject(w)); !errors.As(err, new(*SpecialFileError)) {
		t.Errorf("a pipe in it: %v", err)
	}
}

func TestRehearseGivesNobodyPermissionsBack(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	locked := filepath.Join(w.Tree, "dir")
	l.must(os.Chmod(locked, 0))
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) })
	if _, err := repo.DryRunCapture(t.Context(), l.subject(w)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	if fi, err := os.Lstat(locked); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("now it is %v, %v", fi.Mode(), err)
	}
}

func TestRehearseWorksWhereverTheRepositoryIs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a:b", `qu"ote`, `back\slash`, "new\nline", "#hash", "sp ace"} {
		l := newLab(t)
		l.must(os.Rename(l.dir, filepath.Join(filepath.Dir(l.dir), name)))
		l.dir = filepath.Join(filepath.Dir(l.dir), name)
		repo := l.open()
		w := l.sandbox(repo)
		l.put(w.Tree, "new", "n\n")
		if got, err := l.rehearse(repo, l.subject(w)); err != nil || !got.Dirty {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
}

func TestScrapsAreWhatAKilledProcessLeft(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	if got, err := repo.Leftovers(); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	own := filepath.Join(repo.CommonDir, "agency")
	l.put(own, "capture-"+sandboxName+"/index", "x")
	l.put(own, "incoming-sandbox-"+sandboxName+"/pack/pack-x.pack", "x")
	l.put(own, "removed-"+sandboxName+"/HEAD", "x")
	l.put(own, "lock.flock", "x")
	got, err := repo.Leftovers()
	l.must(err)
	if want := []string{filepath.Join(own, "capture-"+sandboxName), filepath.Join(own, "incoming-sandbox-"+sandboxName), filepath.Join(own, "removed-"+sandboxName)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
