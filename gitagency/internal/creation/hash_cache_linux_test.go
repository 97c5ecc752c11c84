package creation_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// TestStartCachesHashes starts sandboxes from an integration worktree of many files that are old and on the disk.
func TestStartCachesHashes(t *testing.T) {
	t.Parallel()
	r, gitIn := coretest.Open(t, core.Options{})
	wt, err := r.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	gittest.SkipWithoutCachestat(t, wt.TreePath)
	const files = 1200
	for n := range files {
		f, err := os.Create(filepath.Join(wt.TreePath, fmt.Sprintf("file%04d", n)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := fmt.Fprint(f, n); err != nil {
			t.Fatal(err)
		}
		if n < files/16 { // enough for a cache
			if err := durable.WriteBack(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	gitIn(wt.TreePath)("add", "--all")
	gitIn(wt.TreePath)("commit", "-q", "-m", "many files")
	time.Sleep(2100 * time.Millisecond) // younger files could change once more with the same ctime

	var warnings []string
	r = r.WithWarn(func(message string) { warnings = append(warnings, message) })
	cache := filepath.Join(r.Store.RadarDir(r.ID), wt.ID+".hashed")
	startSandbox := func() (stored []byte, at os.FileInfo) {
		t.Helper()
		if _, err := creation.Start(t.Context(), r, creation.Request{Worktree: "wt"}); err != nil {
			t.Fatal(err)
		}
		at, err := os.Stat(cache)
		if err != nil {
			t.Fatal(err)
		}
		stored, _ = os.ReadFile(cache) // not a directory
		return stored, at
	}
	stored, first := startSandbox()
	if _, second := startSandbox(); !os.SameFile(first, second) {
		t.Error("the cache was written again, although no file is new to it")
	}

	ofOtherBoot := append([]byte("00000000"), stored[bytes.IndexByte(stored, '\n'):]...)
	if err := os.WriteFile(cache, ofOtherBoot, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _ := startSandbox(); bytes.Equal(again, ofOtherBoot) {
		t.Error("a cache of another boot was used")
	}
	if len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}

	if err := os.Remove(cache); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	startSandbox()
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "the hashes of the files of "+wt.ID+" could not be cached, ") {
		t.Errorf("with a cache that cannot be written, the warnings are %q", warnings)
	}
}
