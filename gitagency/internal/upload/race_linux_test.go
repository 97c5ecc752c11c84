package upload

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// swapWithLinks exchanges a directory of a tree with symlinks that lead out of the tree or to its .agency, until stop is
// closed.
func swap(t *testing.T, tree, dir, outside string, stop <-chan bool) *sync.WaitGroup {
	t.Helper()
	out, hidden := link(t, outside, filepath.Dir(tree), "out"), link(t, guard.AgencyDir, filepath.Dir(tree), "hidden")
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			for _, other := range []string{out, hidden} {
				for range 2 { // swap and restore
					if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
						t.Error(err)
						return
					}
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	return &swapper
}

func TestADirectorySwappedForALinkNeverLetsAnythingOut(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	dir := mkdir(t, tree.Path, "d")
	for _, d := range []string{dir, outside} {
		write(t, "secret", d, "sub", "x")
	}
	before := state(t, outside)
	stop := make(chan bool)
	swapper := swap(t, tree.Path, dir, outside, stop)
	done, refused, entered := 0, 0, 0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		err := Put(t.Context(), tree, &undo.Tx{}, []File{text("d/x", "new"), text("d/sub/x", "new"), text("d/file", "new"), text("d/new/y", "new"), text("d/SANDBOX_MARKER", "new")}, nil)
		if err == nil {
			done++
		} else {
			refused++
		}
		if in, _, err := tree.OpenWorkDir("d/sub"); err == nil {
			entered++
			here, err := in.Stat()
			must(t, err)
			if there, err := os.Stat(filepath.Join(outside, "sub")); err != nil || os.SameFile(here, there) {
				t.Errorf("a directory outside was entered, %v", err)
			}
			must(t, in.Close())
		}
	}
	close(stop)
	swapper.Wait()
	t.Logf("%d put, %d refused, %d entered", done, refused, entered)
	if done == 0 || refused == 0 || entered == 0 {
		t.Error("the race did not happen")
	}
	if state(t, outside) != before {
		t.Error("files outside changed")
	}
	must(t, Recover(t.Context(), tree, -1))
	if got := read(t, tree.Path, guard.AgencyDir, guard.Sandbox.Name); !strings.HasPrefix(got, "# This directory is a sandbox") || len(entries(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Errorf("the marker is %q, entries of .agency: %q", got, entries(t, tree.Path, guard.AgencyDir))
	}
}

func TestAFileThatIsReplacedIsThereAtEveryMoment(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	name := write(t, "old", tree.Path, "a")
	stop := make(chan bool)
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			if _, err := os.Lstat(name); err != nil {
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
	for range 100 {
		must(t, put(t, tree, text("a", "new")))
	}
	close(stop)
	reader.Wait()
}
