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
func swapWithLinks(t *testing.T, tree, dir, outside string, stop <-chan bool) *sync.WaitGroup {
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

func TestPutStaysInsideDuringSwaps(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	dir := mkdir(t, tree.Path, "d")
	for _, d := range []string{dir, outside} {
		write(t, "secret", d, "sub", "x")
	}
	before := describeTree(t, outside)
	stop := make(chan bool)
	swapper := swapWithLinks(t, tree.Path, dir, outside, stop)
	done, refused, entered := 0, 0, 0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		err := Put(t.Context(), targetOf(tree), &undo.Tx{}, []File{textFile("d/x", "new"), textFile("d/sub/x", "new"), textFile("d/file", "new"), textFile("d/new/y", "new"), textFile("d/SANDBOX_MARKER", "new")}, nil)
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
	if describeTree(t, outside) != before {
		t.Error("files outside changed")
	}
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if got := readFile(t, tree.Path, guard.AgencyDir, guard.Sandbox.Name); !strings.HasPrefix(got, "# This directory is a sandbox") || len(listNames(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Errorf("the marker is %q, entries of .agency: %q", got, listNames(t, tree.Path, guard.AgencyDir))
	}
}

func TestPutReplacesFilesAtomically(t *testing.T) {
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
		must(t, putFiles(t, tree, textFile("a", "new")))
	}
	close(stop)
	reader.Wait()
}
