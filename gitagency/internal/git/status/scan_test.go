package status

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// scanDirectory must note a change when a directory was removed after its parent was listed: the scan does not show the
// state at its beginning.
func TestScanNoticesDirectoryRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	tree := gittest.TempDir(t)
	l.WriteIn(tree, "dir/file", "f\n")
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	l.Must(err)
	entries := []index.Entry{{Mode: object.ModeFile, Name: []byte("dir/file"), Stat: make([]byte, index.StatSize)}}
	w := scanWorker{Scanner: &Scanner{
		startedAt: time.Now().Add(time.Hour).UnixNano(), // in the future, so that no timestamp counts as a change
		result:    &scanResult{entries: entries, statuses: make([]entryStatus, 1), stats: make([]git.FileStat, 1)},
	}}
	l.Must(os.RemoveAll(filepath.Join(tree, "dir")))
	l.Must(w.scanDirectory(&scannedDir{parent: &dirHandle{fd: fd, refCount: 1}, name: "dir", path: "dir/", hi: 1}))
	if !w.changedSinceStart {
		t.Error("the removed directory was not noted as a change")
	}
}
