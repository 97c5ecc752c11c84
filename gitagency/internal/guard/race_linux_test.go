package guard

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenTreeNeverFollowsSwappedLink exchanges the tree with a symlink to another tree in a loop while it is opened.
func TestOpenTreeNeverFollowsSwappedLink(t *testing.T) {
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
			t.Error("OpenTree opened the other tree")
		}
		must(t, errors.Join(err, tree.Close()))
	}
	close(stop)
	swapper.Wait()
	t.Logf("%d opened, %d refused", opened, refused)
	if opened == 0 || refused == 0 {
		t.Error("the race did not happen")
	}
}

// TestChmodDirAtRefusesFiles: a directory may have been replaced by a hard link to a file outside.
func TestChmodDirAtRefusesFiles(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	secret := filepath.Join(outside, "file")
	must(t, os.Chmod(secret, 0o444))
	must(t, os.Link(secret, filepath.Join(tree.Path, "hard")))
	mkdir(t, tree.Path, "d")
	must(t, os.Chmod(filepath.Join(tree.Path, "d"), 0))
	top := openTop(t, tree)
	if err := chmodDirAt(int(top.dir.Fd()), "hard", 0o700); !errors.Is(err, syscall.ENOTDIR) {
		t.Error(err)
	}
	must(t, chmodDirAt(int(top.dir.Fd()), "d", 0o700))
	fi, err := os.Stat(secret)
	must(t, err)
	d, err := os.Stat(filepath.Join(tree.Path, "d"))
	must(t, err)
	if fi.Mode() != 0o444 || d.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), d.Mode())
	}
}
