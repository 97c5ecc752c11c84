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

// A tree from which a directory goes between being listed and being looked at is not in the state that it was in when
// the scan began.
func TestADirectoryThatGoesBeforeItIsLookedAtIsNoticed(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	tree := gittest.TempDir(t)
	l.WriteIn(tree, "dir/file", "f\n")
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	l.Must(err)
	entries := []index.Entry{{Mode: object.ModeFile, Name: []byte("dir/file"), Stat: make([]byte, index.StatSize)}}
	look := worker{Scanner: &Scanner{
		startedAt: time.Now().Add(time.Hour).UnixNano(), // so that it is not by the times of anything
		result:    &scanResult{entries: entries, statuses: make([]entryStatus, 1), stats: make([]git.FileStat, 1)},
	}}
	l.Must(os.RemoveAll(filepath.Join(tree, "dir")))
	l.Must(look.scanDirectory(&scannedDir{parent: &dirHandle{fd: fd, refCount: 1}, name: "dir", path: "dir/", hi: 1}))
	if !look.changedSinceStart {
		t.Error("it was taken for the state that the tree was in when the scan began")
	}
}
