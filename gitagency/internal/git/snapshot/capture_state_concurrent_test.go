package snapshot

import (
	"errors"
	"fmt"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// CaptureState returns a state that existed, while another goroutine writes a counter into two files, always in the same
// order: the second file is never ahead of the first, and at most one behind. Git can read the state.
func TestCaptureStateIsConsistentDuringWrites(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	for _, name := range []string{"a.txt", "new/b"} {
		l.WriteIn(w.Tree, name, "0\n")
	}
	s := repotest.SpecOf(l, w)
	s.Base = l.Git("rev-parse", "main")
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
			time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond) // busy at times, idle at times
		}
	})
	captured, changing := 0, 0
	for range 15 {
		f, err := CaptureState(t.Context(), repo, s, "")
		switch {
		case errors.As(err, new(*status.StillChangingError)):
			changing++
			continue
		case err != nil:
			t.Fatal(err)
		}
		captured++
		first, second := l.Git("show", f.Commit+":a.txt"), l.Git("show", f.Commit+":new/b")
		if first == "" || second == "" { // the file was truncated and not yet written
			continue
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(second)
		if errA != nil || errB != nil || b > a || a-b > 1 {
			t.Fatalf("%q and %q never existed together", first, second)
		}
	}
	close(stop)
	done.Wait()
	t.Logf("%d captured, %d still changing", captured, changing)
	f, err := CaptureState(t.Context(), repo, s, "")
	if err != nil {
		t.Fatalf("after the last write: %v", err)
	}
	l.Git("fsck", "--strict", "--no-dangling")
	l.Git("ls-tree", "-r", f.Commit)
}

// CaptureState writes the same trees as git add and git write-tree, after random changes of files and index.
func TestCaptureStateWritesSameTreesAsGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	names := []string{"a", "a.b", "a-b", "a/b", "a/b/c", "a0", "b", "b/x", "b.x", "c/d/e/f", "c/d.e", "é", "z z"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			path := filepath.Join(w.Tree, name)
			switch random.IntN(4) {
			case 0:
				_ = os.RemoveAll(path) // fails if a parent is a file
			case 1:
				for dir := filepath.Dir(path); dir != w.Tree; dir = filepath.Dir(dir) {
					if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
						l.Must(os.Remove(dir))
					}
				}
				l.Must(os.RemoveAll(path))
				l.WriteIn(w.Tree, name, fmt.Sprint(random.IntN(3)))
			case 2:
				if _, err := os.Lstat(path); err == nil {
					l.GitIn(w.Tree, "add", "-A", "--", ":(literal)"+name)
				}
			case 3:
				if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
					l.Must(os.Chmod(path, []os.FileMode{0o644, 0o755}[random.IntN(2)]))
				}
			}
		}
		s := repotest.SpecOf(l, w)
		s.Message = "taken\n\nAgency-Base: x"
		f, err := CaptureState(t.Context(), repo, s, "")
		l.Must(err)
		if got, want := trailerValue(l, f.Commit, indexTrailer), stagedTreeOf(l, w); got != want {
			t.Fatalf("the index tree is %s, git writes %s", got, want)
		}
		index := filepath.Join(gittest.TempDir(t), "index")
		l.Must(git.CopyFileWithMtime(filepath.Join(repo.AdminDir(w.Name), "index"), index))
		other := *l
		other.Env = append(append([]string{}, l.Env...), "GIT_INDEX_FILE="+index)
		other.GitIn(w.Tree, "add", "-A")
		other.GitIn(w.Tree, "rm", "-r", "-q", "--cached", "--ignore-unmatch", ".agency")
		if got, want := l.Git("rev-parse", f.Commit+"^{tree}"), other.GitIn(w.Tree, "write-tree"); got != want {
			t.Fatalf("the tree is %s, git writes %s:\n%s", got, want, l.Git("diff", "--stat", got, want))
		}
	}
	l.Git("fsck", "--strict", "--no-dangling")
}

// A state holds each file once while another goroutine renames directories to and fro.
func TestCaptureStateIsConsistentDuringRenames(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	const files = 100
	for n := range files {
		l.WriteIn(w.Tree, fmt.Sprintf("here/%d/file", n), fmt.Sprint(n))
	}
	l.GitIn(w.Tree, "add", "here")
	l.GitIn(w.Tree, "commit", "-q", "-m", "here")
	l.Must(os.MkdirAll(filepath.Join(w.Tree, "there"), 0o755))
	s := repotest.SpecOf(l, w)
	s.Base = l.Git("rev-parse", "main")
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
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // busy at times, idle at times
			}
			if err := os.Rename(filepath.Join(w.Tree, from, fmt.Sprint(n)), filepath.Join(w.Tree, to, fmt.Sprint(n))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	captured := 0
	for range 8 {
		f, err := CaptureState(t.Context(), repo, s, "")
		if errors.As(err, new(*status.StillChangingError)) {
			continue
		}
		l.Must(err)
		captured++
		found := map[string]int{}
		for _, name := range strings.Fields(l.Git("ls-tree", "-r", "--name-only", f.Commit, "here", "there")) {
			found[filepath.Base(filepath.Dir(name))]++
		}
		for n := range files {
			if found[fmt.Sprint(n)] != 1 {
				t.Fatalf("file %d is in the state %d times", n, found[fmt.Sprint(n)])
			}
		}
	}
	close(stop)
	done.Wait()
	t.Logf("%d captured", captured)
}

// CaptureState succeeds while another goroutine creates and removes ignored files all the time.
func TestCaptureStateSucceedsDuringIgnoredWrites(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".gitignore", "*.o\n")
	s := repotest.SpecOf(l, w)
	s.Base = l.Git("rev-parse", "main")
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
		_, err := CaptureState(t.Context(), repo, s, "")
		l.Must(err)
	}
	close(stop)
	done.Wait()
}

// CaptureState holds many untracked directories with long names. It asks git about them by name, in portions that fit into
// one command line.
func TestCaptureStateHoldsManyLongDirectoryNames(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	const many = 700
	for n := range many {
		l.WriteIn(w.Tree, fmt.Sprintf("%0200d/file", n), "f\n")
	}
	commit := captureStateOf(l, repo, w, "")
	if got, want := len(l.Files(commit)), len(l.Files("main"))+many; got != want {
		t.Errorf("%d files, want %d", got, want)
	}
}
