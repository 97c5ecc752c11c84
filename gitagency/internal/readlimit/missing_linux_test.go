package readlimit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissingWallsNamesFeatures(t *testing.T) {
	t.Parallel()
	old := errors.New("function not implemented")
	for _, c := range []struct {
		landlock, seccomp error
		want              []string
	}{
		{nil, nil, nil},
		{old, nil, []string{"without Landlock (function not implemented) it can open all your files"}},
		{nil, old, []string{"without seccomp (function not implemented) it can open sockets"}},
	} {
		if got := describeMissing(c.landlock, c.seccomp); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A git that needs a file which the walls hide has none.
func TestMissingWallsNamesProgramThatNeedsMore(t *testing.T) {
	t.Parallel()
	requireLandlock(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"needed": "", "git": "#!/bin/sh\n. " + filepath.Join(dir, "needed") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "git")
	if got := MissingWalls(program); len(got) != 1 || !strings.Contains(got[0], program+" does not run behind them") {
		t.Errorf("got %q", got)
	}
}
