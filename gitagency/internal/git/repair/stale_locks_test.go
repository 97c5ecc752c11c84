package repair

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

func TestLockFilesFindsEveryGitLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	want := []string{
		"HEAD.lock", "config.lock", "index.lock", "packed-refs.lock", "shallow.lock",
		"info/sparse-checkout.lock", "objects/maintenance.lock", "objects/info/commit-graphs/commit-graph-chain.lock",
		"objects/pack/multi-pack-index.lock", "objects/pack/multi-pack-index.d/multi-pack-index-chain.lock", "packed-refs.new", "refs/heads/a b\n\x1b.lock", "refs/heads/deep/er/x.lock", "refs/stash.lock",
		"logs/HEAD.lock", "logs/refs/heads/main.lock", "worktrees/" + w.Name + "/index.lock", "worktrees/" + w.Name + "/HEAD.lock",
	}
	for _, rel := range want {
		l.WriteIn(repo.CommonDir, rel, "")
	}
	// Files with such names that are not git's, or not regular files.
	l.WriteIn(repo.CommonDir, "agency/x.lock", "")
	l.WriteIn(repo.CommonDir, "hooks/x.lock", "")
	l.WriteIn(repo.CommonDir, "refs/heads/packed-refs.new", l.Git("rev-parse", "HEAD")+"\n")
	l.WriteIn(repo.CommonDir, "refs/heads/dir.lock/x", "")
	l.Must(os.Symlink("nowhere", filepath.Join(repo.CommonDir, "link.lock")))
	gittest.MakeFIFO(t, filepath.Join(repo.CommonDir, "pipe.lock"))

	locks, err := LockFiles(repo)
	l.Must(err)
	var got []string
	for _, lock := range locks {
		got = append(got, lock.RelPath)
		l.Must(RemoveLockFile(repo, lock))
		l.Must(RemoveLockFile(repo, lock)) // a second removal is no error
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if left, err := LockFiles(repo); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	l.Git("status")
}

func TestRemoveLockFileKeepsRetakenLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	path := filepath.Join(repo.CommonDir, "index.lock")
	for what, retake := range map[string]func(){
		"another file by rename": func() {
			l.WriteIn(repo.CommonDir, "index.new", "")
			l.Must(os.Rename(filepath.Join(repo.CommonDir, "index.new"), path))
		},
		"same inode, new mtime": func() { l.Must(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))) },
	} {
		l.WriteIn(repo.CommonDir, "index.lock", "")
		locks, err := LockFiles(repo)
		l.Must(err)
		retake()
		if err := RemoveLockFile(repo, locks[0]); err == nil || !gittest.Exists(path) {
			t.Errorf("%s: the lock file was removed, %v", what, err)
		}
		l.Must(os.Remove(path))
	}
}

func TestBlockingRefFindsFIFO(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	l.Git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
	l.Must(os.Symlink("main", filepath.Join(repo.CommonDir, "refs/heads/link")))
	if path, err := BlockingRef(repo); path != "" || err != nil {
		t.Errorf("blocking ref is %q, %v", path, err)
	}
	pipe := filepath.Join(repo.CommonDir, "refs/heads/pipe")
	gittest.MakeFIFO(t, pipe)
	if path, err := BlockingRef(repo); path != pipe || err != nil {
		t.Errorf("blocking ref is %q, %v", path, err)
	}
}

func TestOwnsAnyComparesFileOwners(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	us := uint32(os.Geteuid())
	file, nowhere := filepath.Join(l.Root, "a.txt"), filepath.Join(l.Root, "nowhere")
	for _, c := range []struct {
		uid   uint32
		files []string
		want  bool
	}{
		{us, []string{file}, true},
		{us, []string{nowhere, file}, true},
		{us + 1, []string{nowhere, file}, false},
		{us, []string{nowhere}, false},
		{us, nil, false},
	} {
		if got := ownsAny(c.uid, c.files); got != c.want {
			t.Errorf("user %d owns one of %q: %v", c.uid, c.files, got)
		}
	}
}

func TestPathArgumentsOfGitProcess(t *testing.T) {
	t.Parallel()
	got := pathArguments(proc.Process{
		Args: []string{"git", "--git-dir=/a/.git", "-C", "../b", "commit"},
		Env:  []string{"HOME=/home", "GIT_DIR=/c/.git", "GIT_EMPTY=", "GIT_WORK_TREE=d=e"},
	})
	for _, want := range []string{"/a/.git", "../b", "/c/.git", "d=e"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
	for _, none := range []string{"/home", ""} {
		if slices.Contains(got, none) {
			t.Errorf("%q includes %q", got, none)
		}
	}
	if got := pathArguments(proc.Process{Args: slices.Repeat([]string{"x"}, 100_000)}); len(got) > 64 {
		t.Errorf("%d arguments were returned", len(got))
	}
}
