package checkout

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// TestFillHashesMappedFiles changes a file through a mapping of which the kernel has not written a page yet, so that the ctime
// stays the same.
func TestFillHashesMappedFiles(t *testing.T) {
	t.Parallel()
	l, commit := newSourceOfManyFiles(t)
	gittest.SkipWithoutCachestat(t, l.Root)
	repo := repotest.OpenRepo(l)
	mapped := filepath.Join(l.Root, "many/0")
	for i := range manyFiles / 16 { // enough for a cache
		openWritten(l, fmt.Sprintf("many/%d", i))
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

// TestSettledFilesAreOldAndWritten checks which files may be added to a cache.
func TestSettledFilesAreOldAndWritten(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	gittest.SkipWithoutCachestat(t, l.Root)
	f := openWritten(l, "plain")
	var st unix.Stat_t
	l.Must(unix.Fstat(int(f.Fd()), &st))
	changed := time.Unix(st.Ctim.Unix())
	for age, want := range map[time.Duration]bool{0: false, racyAge - time.Millisecond: false, racyAge + time.Millisecond: true, -time.Hour: false} {
		if got := isSettled(int(f.Fd()), &st, changed.Add(age)); got != want {
			t.Errorf("a file that changed %v ago: settled %t, want %t", age, got, want)
		}
	}
	_, err := f.WriteAt([]byte("P"), 0)
	l.Must(err)
	if isSettled(int(f.Fd()), &st, changed.Add(time.Hour)) {
		t.Error("a file is settled that waits to be written")
	}
}

// openWritten opens a file of the source after the kernel has written it to the disk.
func openWritten(l *gittest.Fixture, name string) *os.File {
	l.T.Helper()
	f, err := os.OpenFile(filepath.Join(l.Root, name), os.O_RDWR, 0)
	l.Must(err)
	l.T.Cleanup(func() { f.Close() })
	l.Must(durable.WriteBack(f))
	return f
}
