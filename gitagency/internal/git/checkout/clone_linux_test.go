package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"golang.org/x/sys/unix"
)

// TestFillSharesBlocks fills a worktree on a file system that can share blocks. It needs root to mount one.
func TestFillSharesBlocks(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("skipped with -short and without root: it mounts a file system")
	}
	dir := mountXFS(t)
	l := newSource(t)
	const size = 32 << 20
	for i, name := range []string{"large", "small"} {
		l.Write(name, strings.Repeat(name, []int{size, 100_000}[i]/len(name)))
	}
	commit := l.Commit("large")
	source := filepath.Join(dir, "source")
	l.Must(exec.CommandContext(t.Context(), "cp", "-a", "--reflink=never", l.Root, source).Run())
	waitUntilOld(t, filepath.Join(source, "small"))
	repo := repotest.OpenRepo(l)

	w := worktree.Registration{Name: gittest.SandboxName, Tree: filepath.Join(dir, "tree"), Branch: "refs/heads/shared", Link: filepath.Join(dir, gittest.SandboxName)}
	l.Must(repo.CreateRef(t.Context(), w.Branch, commit, "test"))
	l.Must(os.Mkdir(w.Tree, 0o755))
	l.Must(worktree.Add(t.Context(), repo, w))
	before := freeBytes(t, dir)
	err := Fill(t.Context(), repo, Request{Worktree: w, Commit: commit, Tree: l.Git("rev-parse", commit+"^{tree}"), Source: Source{Tree: source, GitDir: filepath.Join(source, ".git")}})
	l.Must(err)
	l.Must(exec.CommandContext(t.Context(), "sync", "-f", dir).Run())
	if used := before - freeBytes(t, dir); used > size/4 {
		t.Errorf("%d bytes are used for copies of %d bytes", used, size)
	}
	if status := l.GitIn(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
	requireTrusted(l, repo, w)

	// Neither file changes with the other.
	l.Must(os.WriteFile(filepath.Join(w.Tree, "small"), []byte("mine"), 0o644))
	if data, err := os.ReadFile(filepath.Join(source, "small")); err != nil || !strings.HasPrefix(string(data), "smallsmall") {
		t.Errorf("the source has %d bytes, %v", len(data), err)
	}
}

// mountXFS mounts a new file system that can share blocks.
func mountXFS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 400<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%q: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return at
}

// waitUntilOld waits until a file is so old that its blocks may be shared.
func waitUntilOld(t *testing.T, path string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(time.Unix(st.Ctim.Unix()).Add(racyAge + 100*time.Millisecond)))
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * int64(st.Bsize)
}
