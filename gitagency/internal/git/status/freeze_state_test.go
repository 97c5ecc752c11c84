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

// What has come, changed or gone between the two looks is noticed, and what is ignored is not.
func TestWhatMovesBetweenTwoLooksIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		move func(l *gittest.Lab, tree string)
		want string // part of what is said; empty when nothing is
	}{
		"nothing":                     {func(*gittest.Lab, string) {}, ""},
		"a tracked file":              {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "dir/b.txt", "else\n") }, "dir/b.txt"},
		"the mode of one":             {func(l *gittest.Lab, tree string) { l.Must(os.Chmod(filepath.Join(tree, "dir/b.txt"), 0o755)) }, "dir/b.txt"},
		"one that goes":               {func(l *gittest.Lab, tree string) { l.Must(os.Remove(filepath.Join(tree, "dir/b.txt"))) }, "dir/b.txt"},
		"one that comes back":         {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "a.txt", "a\n") }, "a.txt"},
		"a directory that goes":       {func(l *gittest.Lab, tree string) { l.Must(os.RemoveAll(filepath.Join(tree, "dir"))) }, "dir/"},
		"a new file":                  {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "dir/new", "n\n") }, "dir/new"},
		"a new directory":             {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "fresh/new", "n\n") }, "fresh/"},
		"an untracked file":           {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "stray", "else\n") }, "stray"},
		"one that is new beside it":   {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "loose/more", "m\n") }, "loose"},
		"one that goes beside it":     {func(l *gittest.Lab, tree string) { l.Must(os.Remove(filepath.Join(tree, "loose/file"))) }, "loose/file"},
		"an ignored file":             {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "dir/x.o", "object\n") }, ""},
		"one in an ignored directory": {func(l *gittest.Lab, tree string) { l.WriteIn(tree, "build/x", "object\n") }, ""},
		"what no commit can hold":     {func(l *gittest.Lab, tree string) { gittest.MakeFIFO(l.T, filepath.Join(tree, "pipe")) }, "pipe"},
		"what came and went": {func(l *gittest.Lab, tree string) {
			l.WriteIn(tree, "dir/x", "")
			l.Must(os.Remove(filepath.Join(tree, "dir/x")))
		}, "dir/x"},
		"what was ignored, and went": {func(l *gittest.Lab, tree string) {
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
			s.InUse, s.ChangingDirs = true, []string{"", "dir/", "loose"} // else it is not told what came and went there
			g, err := CollectWorktree(t.Context(), repo, s, l.Git("rev-parse", "main"))
			l.Must(err)
			defer func() { l.Must(g.Close()) }()
			g.scan.result.consistent = false // as where times do not tell
			c.move(l, w.Tree)
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

// The same of what is not looked at: what was not to be checked out and comes, and a submodule that goes.
func TestWhatIsNotLookedAtIsMissedWhenItComesOrGoes(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(l *gittest.Lab, tree string){
		"dir/b.txt": func(l *gittest.Lab, tree string) { l.WriteIn(tree, "dir/b.txt", "back\n") },
		"module":    func(l *gittest.Lab, tree string) { l.Must(os.Remove(filepath.Join(tree, "module"))) },
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
			s.InUse, s.ChangingDirs = true, []string{"", "dir/"} // else it is not told what came and went there
			g, err := CollectWorktree(t.Context(), repo, s, head)
			l.Must(err)
			defer func() { l.Must(g.Close()) }()
			g.scan.result.consistent = false
			l.Must(g.CheckStable(t.Context()))
			move(l, w.Tree)
			var moved *StillChangingError
			if err := g.CheckStable(t.Context()); !errors.As(err, &moved) || !strings.Contains(strings.Join(moved.Paths, "\n"), name) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The clock by which files are stamped stands still for some milliseconds. A directory that changes twice meanwhile looks
// the same.
func TestADirectoryThatChangesTwiceInOneTickIsNoticed(t *testing.T) {
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
	g.scan.result.root.stat, g.scan.result.root.isRacy = git.FileStatOf(&st), true // as if that had been in the same tick
	if err := g.CheckStable(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("got %v", err)
	}
}

// Programs make directories and remove them again. One that has gone since the tree was listed means to look anew.
func TestADirectoryThatHasJustGoneIsNoError(t *testing.T) {
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

// Where times tell that nothing had changed when a look began, what came later is not part of the state, and only what
// was read has to be what it was.
func TestWhatWasReadIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	l.WriteIn(w.Tree, "stray", "s\n")
	l.WriteIn(w.Tree, "loose/file", "f\n")
	later := time.Now().Add(time.Hour) // else everything is as young as the index, and read
	l.Must(os.Chtimes(filepath.Join(repo.AdminDir(w.Name), "index"), later, later))
	head := l.Git("rev-parse", "main")
	gather := func() WorktreeContents {
		t.Helper()
		s := repotest.SpecOf(l, w)
		s.InUse = true
		for deadline := time.Now().Add(gittest.Timeout); ; {
			g, err := CollectWorktree(t.Context(), repo, s, head)
			l.Must(err)
			if g.scan.result.consistent {
				return g
			}
			l.Must(g.Close())
			if time.Now().After(deadline) {
				t.Fatal("the clock never moves on")
			}
		}
	}
	for name, c := range map[string]struct {
		move    func()
		noticed bool
	}{
		"nothing":                   {func() {}, false},
		"what was not read":         {func() { l.WriteIn(w.Tree, "dir/b.txt", "later\n") }, false},
		"a changed file":            {func() { l.WriteIn(w.Tree, "a.txt", "later\n") }, true},
		"an untracked one":          {func() { l.WriteIn(w.Tree, "stray", "later\n") }, true},
		"a name in a new directory": {func() { l.WriteIn(w.Tree, "loose/more", "later\n") }, true},
	} {
		g := gather()
		c.move()
		if err := g.CheckStable(t.Context()); errors.As(err, new(*StillChangingError)) != c.noticed {
			t.Errorf("%s: got %v", name, err)
		}
		l.Must(g.Close())
	}
}

// Who works on a branch of his own commits there. Then HEAD was read too early, however little else has changed.
func TestACommitOnAnotherBranchIsNoticedWhileAStateIsTaken(t *testing.T) {
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
		t.Error("nothing has changed")
	}
	l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "theirs")
	if IsGitStateUnchanged(repo, s, x, was) {
		t.Error("the commit was not noticed")
	}
}
