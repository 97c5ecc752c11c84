package submodule

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOthersListsUnknownRepositories(t *testing.T) {
	t.Parallel()
	modules := t.TempDir()
	for _, dir := range []string{"known/objects", "group/known/refs", "group/unknown", "renamed/objects"} {
		if err := os.MkdirAll(filepath.Join(modules, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(modules, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := Others(modules, []string{"known", "group/known", "missing"})
	if want := []string{"group/unknown", "link", "renamed"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := Others(filepath.Join(modules, "missing"), nil); err != nil || got != nil {
		t.Errorf("a missing directory has %q, %v", got, err)
	}
}

func TestIsFreeFollowsNoLink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "modules", "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(top, "modules", "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"modules/new": true, "modules/dir/new": true, "modules/dir": false, "modules/link": false, "modules/link/new": false} {
		if got := isFree(top, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
