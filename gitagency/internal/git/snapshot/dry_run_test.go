package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// checkedDryRun calls DryRunCapture and checks that it changed nothing, neither in the worktree nor in the repository.
func checkedDryRun(l *gittest.Fixture, repo *git.Repo, s git.WorktreeSpec) (CaptureResult, error) {
	l.T.Helper()
	paths := []string{repo.CommonDir}
	if s.Dir != "" {
		paths = append(paths, s.Dir)
	}
	before := gittest.DiskState(l.T, paths...)
	var got CaptureResult
	var err error
	gittest.Within(l.T, "DryRunCapture", func() { got, err = DryRunCapture(l.T.Context(), repo, s) })
	gittest.RequireSame(l.T, "afterwards", gittest.DiskState(l.T, paths...), before)
	return got, err
}

func TestDryRunCaptureMatchesCapture(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(l *gittest.Fixture, w worktree.Registration){
		"nothing":           func(*gittest.Fixture, worktree.Registration) {},
		"an untracked file": func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, "new", "n\n") },
		"a changed file":    func(l *gittest.Fixture, w worktree.Registration) { l.WriteIn(w.Tree, "a.txt", "changed\n") },
		"an ignored file": func(l *gittest.Fixture, w worktree.Registration) {
			l.Write(".git/info/exclude", "/ignored\n")
			l.WriteIn(w.Tree, "ignored", "i\n")
		},
		"a staged file that is gone": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "staged", "s\n")
			l.GitIn(w.Tree, "add", "staged")
			l.Must(os.Remove(filepath.Join(w.Tree, "staged")))
		},
		"a commit": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "more")
		},
		"an orphan branch": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "checkout", "-q", "--orphan", "beside")
		},
		"an amended commit": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "commit", "-q", "--amend", "-m", "again")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			earlier := captureSpec(l, repo, repotest.SpecOf(l, w))
			work(l, w)
			for _, onto := range []string{"", earlier.Commit} {
				s := repotest.SpecOf(l, w)
				s.Onto = onto
				dryRun, err := checkedDryRun(l, repo, s)
				l.Must(err)
				captured := captureSpec(l, repo, s)
				if dryRun.Dirty != captured.Dirty || dryRun.BranchTip != captured.BranchTip ||
					(dryRun.Commit == earlier.Commit) != (captured.Commit == earlier.Commit) {
					t.Errorf("onto %q: dry run %+v, capture %+v", onto, dryRun, captured)
				}
			}
		})
	}
}

func TestDryRunCaptureRefusesWhatCaptureRefuses(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "init", "-q", "nested")
	if _, err := checkedDryRun(l, repo, repotest.SpecOf(l, w)); !errors.As(err, new(*status.NestedRepositoryError)) {
		t.Errorf("with a nested repository: %v", err)
	}
	l.Must(os.RemoveAll(filepath.Join(w.Tree, "nested")))
	gittest.MakeFIFO(t, filepath.Join(w.Tree, "dir", ".gitattributes"))
	if _, err := checkedDryRun(l, repo, repotest.SpecOf(l, w)); !errors.As(err, new(*git.SpecialFileError)) {
		t.Errorf("with a FIFO: %v", err)
	}
}

func TestDryRunCaptureKeepsPermissions(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	locked := filepath.Join(w.Tree, "dir")
	l.Must(os.Chmod(locked, 0))
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) })
	if _, err := DryRunCapture(t.Context(), repo, repotest.SpecOf(l, w)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	if fi, err := os.Lstat(locked); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("the mode is %v now, %v", fi.Mode(), err)
	}
}

func TestDryRunCaptureInOddlyNamedRepository(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a:b", `qu"ote`, `back\slash`, "new\nline", "#hash", "sp ace"} {
		l := gittest.New(t)
		l.Must(os.Rename(l.Root, filepath.Join(filepath.Dir(l.Root), name)))
		l.Root = filepath.Join(filepath.Dir(l.Root), name)
		repo := repotest.OpenRepo(l)
		w := repotest.AddSandbox(l, repo)
		l.WriteIn(w.Tree, "new", "n\n")
		if got, err := checkedDryRun(l, repo, repotest.SpecOf(l, w)); err != nil || !got.Dirty {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
}
