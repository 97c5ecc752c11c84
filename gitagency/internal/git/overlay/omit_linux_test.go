package overlay

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOmitFollowsThePaths(t *testing.T) {
	t.Parallel()
	upper := filepath.Join(t.TempDir(), "upper")
	for _, dir := range []string{upper, upper + "/own"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(upper+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(upper+"/removed", unix.S_IFCHR, 0); err != nil {
		t.Skip("this kernel allows whiteouts only to root")
	}
	for _, c := range []struct{ omit, whiteouts []string }{
		{nil, []string{"removed"}},
		{[]string{"/low/b", "/low/a", "/low/own", "/low/file", "/else/c"}, []string{"a", "b", "removed"}},
		{[]string{"/low/b", "/low/d"}, []string{"b", "d", "removed"}},
		{nil, []string{"removed"}},
	} {
		if err := Omit(upper, "/low", c.omit); err != nil {
			t.Fatal(err)
		}
		var whiteouts []string
		entries, err := os.ReadDir(upper)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Type()&os.ModeCharDevice != 0 {
				whiteouts = append(whiteouts, e.Name())
			}
		}
		if !slices.Equal(whiteouts, c.whiteouts) {
			t.Errorf("with %q: whiteouts %q, want %q", c.omit, whiteouts, c.whiteouts)
		}
		want := slices.DeleteFunc(slices.Sorted(slices.Values(c.omit)), func(path string) bool { return filepath.Dir(path) != "/low" })
		if got, err := Omitted(upper, "/low"); err != nil || !slices.Equal(got, want) {
			t.Errorf("recorded %q, %v; want %q", got, err, want)
		}
	}
}
