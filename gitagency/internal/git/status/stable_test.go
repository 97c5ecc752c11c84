package status

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// CheckStable must report paths that were created, changed or removed since the first scan, and no ignored paths.
func TestCheckStableReportsChangesBetweenScans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(l *gittest.Fixture, tree string)
		want   string // part of a reported path; empty: no error
	}{
		"no change":                          {func(*gittest.Fixture, string) {}, ""},
		"a tracked file":                     {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "dir/b.txt", "else\n") }, "dir/b.txt"},
		"the mode of a tracked file":         {func(l *gittest.Fixture, tree string) { l.Must(os.Chmod(filepath.Join(tree, "dir/b.txt"), 0o755)) }, "dir/b.txt"},
		"a removed tracked file":             {func(l *gittest.Fixture, tree string) { l.Must(os.Remove(filepath.Join(tree, "dir/b.txt"))) }, "dir/b.txt"},
		"a tracked file created again":       {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "a.txt", "a\n") }, "a.txt"},
		"a removed directory":                {func(l *gittest.Fixture, tree string) { l.Must(os.RemoveAll(filepath.Join(tree, "dir"))) }, "dir/"},
		"a new file":                         {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "dir/new", "n\n") }, "dir/new"},
		"a new directory":                    {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "fresh/new", "n\n") }, "fresh/"},
		"an untracked file":                  {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "stray", "else\n") }, "stray"},
		"a new file beside an untracked one": {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "loose/more", "m\n") }, "loose"},
		"a removed untracked file":           {func(l *gittest.Fixture, tree string) { l.Must(os.Remove(filepath.Join(tree, "loose/file"))) }, "loose/file"},
		"an ignored file":                    {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "dir/x.o", "object\n") }, ""},
		"a file in an ignored directory":     {func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "build/x", "object\n") }, ""},
		"a named pipe":                       {func(l *gittest.Fixture, tree string) { gittest.MakeFIFO(l.T, filepath.Join(tree, "pipe")) }, "pipe"},
		"a file created and removed": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "dir/x", "")
			l.Must(os.Remove(filepath.Join(tree, "dir/x")))
		}, "dir/x"},
		"an ignored file created and removed": {func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "dir/x.o", "")
			l.Must(os.Remove(filepath.Join(tree, "dir/x.o")))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, ".gitignore", "*.o\nbuild/\n")
			l.WriteIn(w.Tree, "stray", "s\n")
			l.WriteIn(w.Tree, "loose/file", "f\n")
			l.Must(os.Remove(filepath.Join(w.Tree, "a.txt")))
			s := repotest.SpecOf(l, w)
			s.InUse, s.ChangingDirs = true, []string{"", "dir/", "loose"} // watched: names that come and go are reported only there
			g, err := CollectWorktree(t.Context(), repo, s, l.Git("rev-parse", "main"))
			l.Must(err)
			defer func() { l.Must(g.Close()) }()
			g.scan.result.consistent = false // as if timestamps proved nothing
			c.change(l, w.Tree)
			err = g.CheckStable(t.Context())
			var moved *StillChangingError
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want != "" && !errors.As(err, &moved):
				t.Errorf("got %v", err)
			case c.want != "" && !strings.Contains(strings.Join(moved.Paths, "\n"), c.want):
				t.Errorf("got %q", moved.Paths)
			}
		})
	}
}

// CheckStable must report entries that the scan does not read: a skip-worktree file that is created, and the directory of
// a submodule that is removed.
func TestCheckStableReportsUnscannedEntries(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *gittest.Fixture, tree string){
		"dir/b.txt": func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "dir/b.txt", "back\n") },
		"module":    func(l *gittest.Fixture, tree string) { l.Must(os.Remove(filepath.Join(tree, "module"))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			head := l.Git("rev-parse", "main")
			l.GitIn(w.Tree, "update-index", "--skip-worktree", "dir/b.txt")
			l.GitIn(w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+head+",module")
			l.Must(os.Remove(filepath.Join(w.Tree, "dir/b.txt")))
			l.Must(os.Mkdir(filepath.Join(w.Tree, "module"), 0o755))
			s := repotest.SpecOf(l, w)
			s.InUse, s.ChangingDirs = true, []string{"", "dir/"} // watched: names that come and go are reported only there
			g, err := CollectWorktree(t.Context(), repo, s, head)
			l.Must(err)
			defer func() { l.Must(g.Close()) }()
			g.scan.result.consistent = false
			l.Must(g.CheckStable(t.Context()))
			change(l, w.Tree)
			var moved *StillChangingError
			if err := g.CheckStable(t.Context()); !errors.As(err, &moved) || !strings.Contains(strings.Join(moved.Paths, "\n"), name) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// CheckStable must report a directory that changed twice within one tick of the file timestamp clock, which takes some
// milliseconds: its stat data is the same after both changes.
func TestCheckStableReportsRacyDirectory(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "first", "f\n")
	s := repotest.SpecOf(l, w)
	s.InUse = true
	g, err := CollectWorktree(t.Context(), repo, s, l.Git("rev-parse", "main"))
	l.Must(err)
	defer func() { l.Must(g.Close()) }()
	g.scan.result.consistent = false
	l.WriteIn(w.Tree, "second", "s\n")
	var st unix.Stat_t
	l.Must(unix.Lstat(w.Tree, &st))
	g.scan.result.root.stat, g.scan.result.root.isRacy = git.FileStatOf(&st), true // as if the change had been in the same tick
	if err := g.CheckStable(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("got %v", err)
	}
}

// classifyUntracked must return a *StillChangingError, so that the worktree is scanned again, for a directory that was
// removed after it was listed.
func TestClassifyUntrackedReportsRemovedDirectory(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	s := repotest.SpecOf(l, w)
	s.InUse = true
	g, err := CollectWorktree(t.Context(), repo, s, l.Git("rev-parse", "main"))
	l.Must(err)
	defer func() { l.Must(g.Close()) }()
	g.scan.result.untracked = append(g.scan.result.untracked, pathStat{name: "temporary/"})
	if err := g.scan.classifyUntracked(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("got %v", err)
	}
}

// If timestamps prove that nothing had changed when the scan began, later changes are not part of the state, and
// CheckStable must only report changes of the paths that were read.
func TestCheckStableRechecksFilesRead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	l.WriteIn(w.Tree, "stray", "s\n")
	l.WriteIn(w.Tree, "loose/file", "f\n")
	later := time.Now().Add(time.Hour) // otherwise every file is as young as the index, and read
	l.Must(os.Chtimes(filepath.Join(repo.AdminDir(w.Name), "index"), later, later))
	head := l.Git("rev-parse", "main")
	collect := func() WorktreeContents {
		t.Helper()
		s := repotest.SpecOf(l, w)
		s.InUse = true
		for deadline := time.Now().Add(gittest.Timeout); ; {
			g, err := CollectWorktree(t.Context(), repo, s, head)
			l.Must(err)
			if g.scan.result.consistent && g.scan.isUntouched() { // the scan does not look into untracked directories
				return g
			}
			l.Must(g.Close())
			if time.Now().After(deadline) {
				t.Fatal("no scan was consistent by its timestamps")
			}
		}
	}
	for name, c := range map[string]struct {
		change   func()
		reported bool
	}{
		"no change":                 {func() {}, false},
		"a file that was not read":  {func() { l.WriteIn(w.Tree, "dir/b.txt", "later\n") }, false},
		"a changed file":            {func() { l.WriteIn(w.Tree, "a.txt", "later\n") }, true},
		"an untracked file":         {func() { l.WriteIn(w.Tree, "stray", "later\n") }, true},
		"a name in a new directory": {func() { l.WriteIn(w.Tree, "loose/more", "later\n") }, true},
	} {
		g := collect()
		c.change()
		if err := g.CheckStable(t.Context()); errors.As(err, new(*StillChangingError)) != c.reported {
			t.Errorf("%s: got %v", name, err)
		}
		l.Must(g.Close())
	}
}

// IsGitStateUnchanged must notice a commit on the branch that is checked out, even if that is not the branch of the
// sandbox: HEAD was read before it.
func TestGitStateStampDetectsCommitOnOtherBranch(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.GitIn(w.Tree, "checkout", "-q", "-b", "theirs")
	s := repotest.SpecOf(l, w)
	was := StampGitState(repo, s)
	x, _, err := readPlainIndex(repo, w.Name, object.SHA1)
	l.Must(err)
	if !IsGitStateUnchanged(repo, s, x, was) {
		t.Error("reported as changed without a change")
	}
	l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "theirs")
	if IsGitStateUnchanged(repo, s, x, was) {
		t.Error("the commit was not noticed")
	}
}
