package git

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Somebody counts in two files, always in the same order. Whatever is taken meanwhile is a state that was there: the
// second file is never ahead of the first, and at most one behind; and git can read it.
func TestAStateIsOneThatTheTreeWasInHoweverMuchIsWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	for _, name := range []string{"a.txt", "new/b"} {
		l.put(w.Tree, name, "0\n")
	}
	s := l.subject(w)
	s.Base = l.git("rev-parse", "main")
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, name := range []string{"a.txt", "new/b"} {
				if err := os.WriteFile(filepath.Join(w.Tree, name), fmt.Appendf(nil, "%d\n", n), 0o644); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond) // now busy, now idle
		}
	})
	taken, unsettled := 0, 0
	for range 15 {
		f, err := repo.CaptureState(t.Context(), s, "")
		switch {
		case errors.As(err, new(*StillChangingError)):
			unsettled++
			continue
		case err != nil:
			t.Fatal(err)
		}
		taken++
		first, second := l.git("show", f.Commit+":a.txt"), l.git("show", f.Commit+":new/b")
		if first == "" || second == "" { // between truncating and writing there is nothing in it
			continue
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(second)
		if errA != nil || errB != nil || b > a || a-b > 1 {
			t.Fatalf("%q and %q were never there together", first, second)
		}
	}
	close(stop)
	done.Wait()
	t.Logf("%d taken, %d not", taken, unsettled)
	f, err := repo.CaptureState(t.Context(), s, "")
	if err != nil {
		t.Fatalf("when nobody writes any more: %v", err)
	}
	l.git("fsck", "--strict", "--no-dangling")
	l.git("ls-tree", "-r", f.Commit)
}

// What has come, changed or gone between the two looks is noticed, and what is ignored is not.
func TestWhatMovesBetweenTwoLooksIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		move func(l *lab, tree string)
		want string // part of what is said; empty when nothing is
	}{
		"nothing":                     {func(*lab, string) {}, ""},
		"a tracked file":              {func(l *lab, tree string) { l.put(tree, "dir/b.txt", "else\n") }, "dir/b.txt"},
		"the mode of one":             {func(l *lab, tree string) { l.must(os.Chmod(filepath.Join(tree, "dir/b.txt"), 0o755)) }, "dir/b.txt"},
		"one that goes":               {func(l *lab, tree string) { l.must(os.Remove(filepath.Join(tree, "dir/b.txt"))) }, "dir/b.txt"},
		"one that comes back":         {func(l *lab, tree string) { l.put(tree, "a.txt", "a\n") }, "a.txt"},
		"a directory that goes":       {func(l *lab, tree string) { l.must(os.RemoveAll(filepath.Join(tree, "dir"))) }, "dir/"},
		"a new file":                  {func(l *lab, tree string) { l.put(tree, "dir/new", "n\n") }, "dir/new"},
		"a new directory":             {func(l *lab, tree string) { l.put(tree, "fresh/new", "n\n") }, "fresh/"},
		"an untracked file":           {func(l *lab, tree string) { l.put(tree, "stray", "else\n") }, "stray"},
		"one that is new beside it":   {func(l *lab, tree string) { l.put(tree, "loose/more", "m\n") }, "loose"},
		"one that goes beside it":     {func(l *lab, tree string) { l.must(os.Remove(filepath.Join(tree, "loose/file"))) }, "loose/file"},
		"an ignored file":             {func(l *lab, tree string) { l.put(tree, "dir/x.o", "object\n") }, ""},
		"one in an ignored directory": {func(l *lab, tree string) { l.put(tree, "build/x", "object\n") }, ""},
		"what no commit can hold":     {func(l *lab, tree string) { fifo(l.t, filepath.Join(tree, "pipe")) }, "pipe"},
		"what came and went":          {func(l *lab, tree string) { l.put(tree, "dir/x", ""); l.must(os.Remove(filepath.Join(tree, "dir/x"))) }, "dir/x"},
		"what was ignored, and went": {func(l *lab, tree string) {
			l.put(tree, "dir/x.o", "")
			l.must(os.Remove(filepath.Join(tree, "dir/x.o")))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, ".gitignore", "*.o\nbuild/\n")
			l.put(w.Tree, "stray", "s\n")
			l.put(w.Tree, "loose/file", "f\n")
			l.must(os.Remove(filepath.Join(w.Tree, "a.txt")))
			s := l.subject(w)
			s.inUse, s.changingDirs = true, []string{"", "dir/", "loose"} // else it is not told what came and went there
			g, err := repo.collectWorktree(t.Context(), s, l.git("rev-parse", "main"))
			l.must(err)
			defer func() { l.must(g.close()) }()
			g.scan.result.consistent = false // as where times do not tell
			c.move(l, w.Tree)
			err = g.checkStable(t.Context())
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
	for name, move := range map[string]func(l *lab, tree string){
		"dir/b.txt": func(l *lab, tree string) { l.put(tree, "dir/b.txt", "back\n") },
		"module":    func(l *lab, tree string) { l.must(os.Remove(filepath.Join(tree, "module"))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			head := l.git("rev-parse", "main")
			l.in(w.Tree, "update-index", "--skip-worktree", "dir/b.txt")
			l.in(w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+head+",module")
			l.must(os.Remove(filepath.Join(w.Tree, "dir/b.txt")))
			l.must(os.Mkdir(filepath.Join(w.Tree, "module"), 0o755))
			s := l.subject(w)
			s.inUse, s.changingDirs = true, []string{"", "dir/"} // else it is not told what came and went there
			g, err := repo.collectWorktree(t.Context(), s, head)
			l.must(err)
			defer func() { l.must(g.close()) }()
			g.scan.result.consistent = false
			l.must(g.checkStable(t.Context()))
			move(l, w.Tree)
			var moved *StillChangingError
			if err := g.checkStable(t.Context()); !errors.As(err, &moved) || !strings.Contains(strings.Join(moved.Paths, "\n"), name) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The clock by which files are stamped stands still for some milliseconds. A directory that changes twice meanwhile looks
// the same.
func TestADirectoryThatChangesTwiceInOneTickIsNoticed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "first", "f\n")
	s := l.subject(w)
	s.inUse = true
	g, err := repo.collectWorktree(t.Context(), s, l.git("rev-parse", "main"))
	l.must(err)
	defer func() { l.must(g.close()) }()
	g.scan.result.consistent = false
	l.put(w.Tree, "second", "s\n")
	var st unix.Stat_t
	l.must(unix.Lstat(w.Tree, &st))
	g.scan.result.root.stat, g.scan.result.root.isRacy = fileStatOf(&st), true // as if that had been in the same tick
	if err := g.checkStable(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("got %v", err)
	}
}

// Programs make directories and remove them again. One that has gone since the tree was listed means to look anew.
func TestADirectoryThatHasJustGoneIsNoError(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	s := l.subject(w)
	s.inUse = true
	g, err := repo.collectWorktree(t.Context(), s, l.git("rev-parse", "main"))
	l.must(err)
	defer func() { l.must(g.close()) }()
	g.scan.result.untracked = append(g.scan.result.untracked, pathStat{name: "temporary/"})
	if err := g.scan.classifyUntracked(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("got %v", err)
	}
}

// Where times tell that nothing had changed when a look began, what came later is not part of the state, and only what
// was read has to be what it was.
func TestWhatWasReadIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, "a.txt", "changed\n")
	l.put(w.Tree, "stray", "s\n")
	l.put(w.Tree, "loose/file", "f\n")
	later := time.Now().Add(time.Hour) // else everything is as young as the index, and read
	l.must(os.Chtimes(filepath.Join(repo.AdminDir(w.Name), "index"), later, later))
	head := l.git("rev-parse", "main")
	gather := func() worktreeContents {
		t.Helper()
		s := l.subject(w)
		s.inUse = true
		for deadline := time.Now().Add(patience); ; {
			g, err := repo.collectWorktree(t.Context(), s, head)
			l.must(err)
			if g.scan.result.consistent {
				return g
			}
			l.must(g.close())
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
		"what was not read":         {func() { l.put(w.Tree, "dir/b.txt", "later\n") }, false},
		"a changed file":            {func() { l.put(w.Tree, "a.txt", "later\n") }, true},
		"an untracked one":          {func() { l.put(w.Tree, "stray", "later\n") }, true},
		"a name in a new directory": {func() { l.put(w.Tree, "loose/more", "later\n") }, true},
	} {
		g := gather()
		c.move()
		if err := g.checkStable(t.Context()); errors.As(err, new(*StillChangingError)) != c.noticed {
			t.Errorf("%s: got %v", name, err)
		}
		l.must(g.close())
	}
}

// The trees that we make are those that git would have made.
func TestTreesOfOurOwnAreGits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	names := []string{"a", "a.b", "a-b", "a/b", "a/b/c", "a0", "b", "b/x", "b.x", "c/d/e/f", "c/d.e", "é", "z z"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			path := filepath.Join(w.Tree, name)
			switch random.IntN(4) {
			case 0:
				_ = os.RemoveAll(path) // which may lie below a file
			case 1:
				for dir := filepath.Dir(path); dir != w.Tree; dir = filepath.Dir(dir) {
					if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
						l.must(os.Remove(dir))
					}
				}
				l.must(os.RemoveAll(path))
				l.put(w.Tree, name, fmt.Sprint(random.IntN(3)))
			case 2:
				if _, err := os.Lstat(path); err == nil {
					l.in(w.Tree, "add", "-A", "--", ":(literal)"+name)
				}
			case 3:
				if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
					l.must(os.Chmod(path, []os.FileMode{0o644, 0o755}[random.IntN(2)]))
				}
			}
		}
		s := l.subject(w)
		s.Message = "taken\n\nAgency-Base: x"
		f, err := repo.CaptureState(t.Context(), s, "")
		l.must(err)
		if got, want := l.trailer(f.Commit, indexTrailer), l.index(w); got != want {
			t.Fatalf("staged %s, git says %s", got, want)
		}
		index := filepath.Join(tempDir(t), "index")
		l.must(copyFileWithMtime(filepath.Join(repo.AdminDir(w.Name), "index"), index))
		other := *l
		other.env = append(append([]string{}, l.env...), "GIT_INDEX_FILE="+index)
		other.in(w.Tree, "add", "-A")
		other.in(w.Tree, "rm", "-r", "-q", "--cached", "--ignore-unmatch", ".agency")
		if got, want := l.git("rev-parse", f.Commit+"^{tree}"), other.in(w.Tree, "write-tree"); got != want {
			t.Fatalf("on disk %s, git says %s:\n%s", got, want, l.git("diff", "--stat", got, want))
		}
	}
	l.git("fsck", "--strict", "--no-dangling")
}

func TestRefsReadFromTheirFilesAreThoseThatGitSees(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	one := l.git("rev-parse", "main")
	two := l.git("commit-tree", "-m", "two", "main^{tree}")
	same := func(when string, quick bool) {
		t.Helper()
		got, ok := repo.readRefFiles([]string{"refs/agency/x/"})
		if ok != quick {
			t.Fatalf("%s: read at once: %v", when, ok)
		}
		if !ok {
			return
		}
		asked := *repo
		asked.Config = nil
		want, err := asked.Refs(t.Context(), "refs/agency/x/")
		l.must(err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, git says %v", when, got, want)
		}
		for _, ref := range []string{"refs/agency/x/1", "refs/agency/x/10", "refs/agency/x/deep", "refs/agency/x/deep/er/2", "refs/agency/x/0"} {
			if tip, ok := repo.readRefFile(ref); !ok || tip != want[ref] {
				t.Errorf("%s: %s at %q, %v; git says %q", when, ref, tip, ok, want[ref])
			}
		}
	}
	same("without any", true)
	l.git("update-ref", "refs/agency/x/1", one)
	l.git("update-ref", "refs/agency/xy/1", one)
	l.git("update-ref", "refs/agency/x/deep/er/2", one)
	same("with files", true)
	l.git("pack-refs", "--all")
	same("packed", true)
	l.git("update-ref", "refs/agency/x/1", two)
	l.git("update-ref", "refs/agency/x/10", two)
	same("both", true)
	l.git("update-ref", "-d", "refs/agency/x/deep/er/2")
	l.put(repo.CommonDir, "refs/agency/x/7.lock", "")
	same("with a lock", true)
	l.git("symbolic-ref", "refs/agency/x/9", "refs/heads/main")
	if tip, ok := repo.readRefFile("refs/agency/x/9"); ok {
		t.Errorf("a symbolic ref is at %q", tip)
	}
	same("with a symbolic one", false)
}

// Somebody moves files and directories about, so that everything is always somewhere: whatever is taken meanwhile has
// each of them once.
func TestAStateHasEverythingOnceWhileItIsMovedAbout(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	const files = 100
	for n := range files {
		l.put(w.Tree, fmt.Sprintf("here/%d/file", n), fmt.Sprint(n))
	}
	l.in(w.Tree, "add", "here")
	l.in(w.Tree, "commit", "-q", "-m", "here")
	l.must(os.MkdirAll(filepath.Join(w.Tree, "there"), 0o755))
	s := l.subject(w)
	s.Base = l.git("rev-parse", "main")
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		from, to := "here", "there"
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if n == files {
				n, from, to = 0, to, from
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // now busy, now idle
			}
			if err := os.Rename(filepath.Join(w.Tree, from, fmt.Sprint(n)), filepath.Join(w.Tree, to, fmt.Sprint(n))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	taken := 0
	for range 8 {
		f, err := repo.CaptureState(t.Context(), s, "")
		if errors.As(err, new(*StillChangingError)) {
			continue
		}
		l.must(err)
		taken++
		at := map[string]int{}
		for _, name := range strings.Fields(l.git("ls-tree", "-r", "--name-only", f.Commit, "here", "there")) {
			at[filepath.Base(filepath.Dir(name))]++
		}
		for n := range files {
			if at[fmt.Sprint(n)] != 1 {
				t.Fatalf("%d is there %d times", n, at[fmt.Sprint(n)])
			}
		}
	}
	close(stop)
	done.Wait()
	t.Logf("%d taken", taken)
}

// A program that writes nothing but what is ignored keeps nobody from taking a state, however often it does.
func TestAStateIsTakenWhileOnlyIgnoredFilesComeAndGo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.put(w.Tree, ".gitignore", "*.o\n")
	s := l.subject(w)
	s.Base = l.git("rev-parse", "main")
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, name := range []string{"x.o", "dir/y.o"} {
				path := filepath.Join(w.Tree, name)
				if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Remove(path)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 5 {
		_, err := repo.CaptureState(t.Context(), s, "")
		l.must(err)
	}
	close(stop)
	done.Wait()
}

// Who works on a branch of his own commits there. Then HEAD was read too early, however little else has changed.
func TestACommitOnAnotherBranchIsNoticedWhileAStateIsTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "checkout", "-q", "-b", "theirs")
	s := l.subject(w)
	was := repo.stampGitState(s)
	x, _, err := repo.readPlainIndex(w.Name, SHA1)
	l.must(err)
	if !repo.isGitStateUnchanged(s, x, was) {
		t.Error("nothing has changed")
	}
	l.in(w.Tree, "commit", "-q", "--allow-empty", "-m", "theirs")
	if repo.isGitStateUnchanged(s, x, was) {
		t.Error("the commit was not noticed")
	}
}

// What has no entry in the index is asked of git directory by directory, and however many there are, and however long
// their names, not more at a time than a program can be told.
func TestAStateHoldsManyDirectoriesWithLongNames(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	const many = 700
	for n := range many {
		l.put(w.Tree, fmt.Sprintf("%0200d/file", n), "f\n")
	}
	commit := l.freeze(repo, w, "")
	if got, want := len(l.files(commit)), len(l.files("main"))+many; got != want {
		t.Errorf("%d files, want %d", got, want)
	}
}
