package overlay

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadUpperFileReportsDeletedFiles(t *testing.T) {
	t.Parallel()
	upper := newUpperDir(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(upper, "opaque"), 0o755))
	must(os.Mkdir(filepath.Join(upper, "opaque/sub"), 0o755))
	must(unix.Setxattr(filepath.Join(upper, "opaque"), "user.overlay.opaque", []byte("y"), 0))
	must(os.Mkdir(filepath.Join(upper, "marked"), 0o755))
	must(unix.Setxattr(filepath.Join(upper, "marked"), "user.overlay.opaque", []byte("x"), 0))
	must(os.WriteFile(filepath.Join(upper, "marked/gone"), nil, 0o644))
	must(unix.Setxattr(filepath.Join(upper, "marked/gone"), "user.overlay.whiteout", nil, 0))
	want := map[string]bool{
		"opaque/x": true, "opaque/sub/x": true, "opaque/none/x": true,
		"marked/gone": true, "marked/gone/x": true, "marked/x": false, "x": false,
	}
	if err := unix.Mknod(filepath.Join(upper, "whiteout"), unix.S_IFCHR, 0); err == nil { // newer kernels allow it to every user
		want["whiteout"], want["whiteout/x"] = true, true
	}
	for name, gone := range want {
		if got, err := ReadUpperFile(upper, name, 100); err != nil || got.Found || got.Deleted != gone {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
	before := mustFingerprint(t, upper)
	must(unix.Removexattr(filepath.Join(upper, "opaque"), "user.overlay.opaque"))
	if mustFingerprint(t, upper) == before {
		t.Error("removing an opaque mark did not change the fingerprint")
	}
}
