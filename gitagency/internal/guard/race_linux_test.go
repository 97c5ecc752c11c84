package guard

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tree is swapped for a link to another, again and again, while it is opened.
func TestATreeThatIsSwappedForALinkIsNeverAnotherOne(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	top, other := mkdir(t, dir, "tree"), mkdir(t, dir, "other")
	away := link(t, other, dir, "link")
	theirs, err := os.Stat(other)
	must(t, err)
	stop := make(chan bool)
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			if err := unix.Renameat2(unix.AT_FDCWD, top, unix.AT_FDCWD, away, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	opened, refused := 0, 0
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		tree, err := OpenTree(filepath.Join(dir, "tree"))
		if err != nil {
			refused++
			continue
		}
		opened++
		ours, err := tree.root.Stat(".")
		if os.SameFile(ours, theirs) {
			t.Error("it is the other tree")
		}
		must(t, errors.Join(err, tree.Close()))
	}
	close(stop)
	swapper.Wait()
	t.Logf("%d opened, %d refused", opened, refused)
	if opened == 0 || refused == 0 {
		t.Error("nothing was raced")
	}
}
