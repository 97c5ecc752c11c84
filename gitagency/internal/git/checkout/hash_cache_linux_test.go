package checkout

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// TestFillHashesMappedFiles changes a file through a mapping of which the kernel has not written a page yet, so that the ctime
// stays the same.
func TestFillHashesMappedFiles(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	const files = 1200
	for i := range files {
		l.Write(fmt.Sprintf("many/%d", i), "content\n")
	}
	commit := l.Commit("many files")
	repo := repotest.OpenRepo(l)
	mapped := filepath.Join(l.Root, "many/0")
	for i := range files / 16 { // enough for a cache
		f, err := os.OpenFile(filepath.Join(l.Root, fmt.Sprintf("many/%d", i)), os.O_RDWR, 0)
		l.Must(err)
		defer f.Close()
		l.Must(durable.WriteBack(f))
		if !durable.IsWritten(int(f.Fd())) {
			t.Skip("the file system or the kernel cannot say which files are written")
		}
	}
	f, err := os.OpenFile(mapped, os.O_RDWR, 0)
	l.Must(err)
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, len("content\n"), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	l.Must(err)
	defer func() { l.Must(unix.Munmap(memory)) }()
	copy(memory, "content\n") // from now on the page is dirty
	waitUntilOld(t, mapped)

	cache := &testCache{}
	fill := func(id string) string {
		w := register(l, repo, id, commit)
		l.Must(Fill(t.Context(), repo, requestFor(l, w, commit, cache.ofSettledFiles())))
		got, err := os.ReadFile(filepath.Join(w.Tree, "many/0"))
		l.Must(err)
		return string(got)
	}
	fill("20260101000000-aaaa")
	if cache.saves != 1 {
		t.Error("the hashes of the other files were not stored")
	}
	copy(memory, "CONTENT\n")
	if got := fill("20260101000000-bbbb"); got != "content\n" {
		t.Errorf("the new worktree has %q", got)
	}
}
