package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// TestTrialOfWallsIsRepeatedUnderOtherConditions counts trials by the cache file, which each successful one replaces.
func TestTrialOfWallsIsRepeatedUnderOtherConditions(t *testing.T) {
	t.Parallel()
	repo := sandboxtest.NewWithCommit(t, core.Options{}).Repo
	prims := store.Primitives{Isolation: "os", Outputs: "open"}
	cache := filepath.Join(repo.Store.RadarDir(repo.ID), "walls.cache")
	try := func(prims store.Primitives) os.FileInfo {
		t.Helper()
		if err := sandbox.CheckWalls(t.Context(), repo, prims); err != nil {
			t.Fatal(err)
		}
		sandbox.SaveWallsTrial(repo, prims)
		fi, err := os.Lstat(cache)
		if err != nil {
			t.Fatal(err)
		}
		return fi
	}
	first := try(prims)
	if !os.SameFile(first, try(prims)) {
		t.Error("a second trial under the same conditions")
	}
	prims.Outputs = "none"
	other := try(prims)
	if os.SameFile(first, other) {
		t.Error("no trial with a network namespace")
	}
	if err := os.WriteFile(cache, []byte("conditions of another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	try(prims)
	if text, err := os.ReadFile(cache); err != nil || string(text) == "conditions of another boot\n" {
		t.Errorf("no trial after another boot: %q, %v", text, err)
	}
}
