package git

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tree from which a directory goes between being listed and being looked at is not in the state that it was in when
// the scan began.
func TestADirectoryThatGoesBeforeItIsLookedAtIsNoticed(t *testing.T) {
	t.Parallel()
	l := emptyLab(t)
	tree := tempDir(t)
	l.put(tree, "dir/file", "f\n")
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	l.must(err)
	entries := []indexEntry{{mode: modeFile, name: []byte("dir/file"), stat: make([]byte, statSize)}}
	look := worker{scanner: &scanner{
		startedAt: time.Now().Add(time.Hour).UnixNano(), // so that it is not by the times of anything
		result:    &scanResult{entries: entries, statuses: make([]entryStatus, 1), stats: make([]fileStat, 1)},
	}}
	l.must(os.RemoveAll(filepath.Join(tree, "dir")))
	l.must(look.scanDirectory(&scannedDir{parent: &dirHandle{fd: fd, refCount: 1}, name: "dir", path: "dir/", hi: 1}))
	if !look.changedSinceStart {
		t.Error("it was taken for the state that the tree was in when the scan began")
	}
}
