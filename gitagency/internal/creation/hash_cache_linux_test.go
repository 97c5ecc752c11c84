package creation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// TestStartCachesHashes starts sandboxes from an integration worktree of many files that are old and on the disk.
func TestStartCachesHashes(t *testing.T) {
	t.Parallel()
	r, gitIn := coretest.Open(t, core.Options{})
	wt, err := r.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	const files = 1200
	name := func(n int) string { return filepath.Join(wt.TreePath, fmt.Sprintf("file%04d", n)) }
	for n := range files {
		if err := os.WriteFile(name(n), fmt.Append(nil, n), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	gitIn(wt.TreePath)("add", "--all")
	gitIn(wt.TreePath)("commit", "-q", "-m", "many files")
	for n := range files / 16 { // enough for a cache
		if !writeBack(t, name(n)) {
			t.Skip("the file system or the kernel cannot say which files are written")
		}
	}
	time.Sleep(2100 * time.Millisecond) // younger files could change once more with the same ctime

	cache := filepath.Join(r.Store.RadarDir(r.ID), wt.ID+".hashed")
	startSandbox := func() {
		t.Helper()
		if _, err := creation.Start(t.Context(), r, creation.Request{Worktree: "wt"}); err != nil {
			t.Fatal(err)
		}
	}
	startSandbox()
	first, err := os.Stat(cache)
	if err != nil {
		t.Fatal(err)
	}
	startSandbox()
	if second, err := os.Stat(cache); err != nil || !os.SameFile(first, second) {
		t.Errorf("the cache was written again, although no file is new to it: %v", err)
	}
}

// writeBack has the kernel write a file to the disk, and reports whether it says that it did.
func writeBack(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := durable.WriteBack(f); err != nil {
		t.Fatal(err)
	}
	return durable.IsWritten(int(f.Fd()))
}
