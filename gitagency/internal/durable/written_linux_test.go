package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"golang.org/x/sys/unix"
)

// TestWrittenFileChangesCtime checks what IsWritten promises: while it is true, a write through a mapping changes the ctime.
func TestWrittenFileChangesCtime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gittest.SkipWithoutCachestat(t, dir)
	f, err := os.Create(filepath.Join(dir, "file"))
	must(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 10_000))
	must(t, err)
	file := int(f.Fd())
	writeBack := func() {
		t.Helper()
		must(t, WriteBack(f))
	}
	ctime := func() unix.Timespec {
		var st unix.Stat_t
		must(t, unix.Fstat(file, &st))
		return st.Ctim
	}
	writeBack()
	memory, err := unix.Mmap(file, 0, 10_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(memory)) }()
	for range 2 {
		for before := ctime(); ctime() == before; { // the clock of the file system has ticks
			writeBack()
			memory[0]++
		}
		if IsWritten(file) {
			t.Error("a file counts as written while a page of it is not")
		}
		writeBack()
		if !IsWritten(file) {
			t.Error("a file does not count as written")
		}
	}
	if shm, err := os.CreateTemp("/dev/shm", "git-agency-test-*"); err == nil {
		defer os.Remove(shm.Name())
		defer shm.Close()
		var fs unix.Statfs_t
		must(t, unix.Fstatfs(int(shm.Fd()), &fs))
		if int64(fs.Type) == unix.TMPFS_MAGIC && IsWritten(int(shm.Fd())) {
			t.Error("a file in memory counts as written")
		}
	}
}
