package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/scripts/shellscript"
)

const testID = "d873389d9241149a9bfe567594728a45bc81e17048f3720a18204f808b1aaf44"

func noCleaning() error { return nil }

// fakeEngine writes a client that answers like podman: one image, whose archive is the file "image.tar", and containers as lines of
// the file "containers".
func fakeEngine(t *testing.T, archive []byte) (Engine, string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
cd ` + dir + ` || exit 1
echo "$@" >>calls
case "$1 $2" in
"image inspect")
	case "$5" in
	known|` + testID + `) printf 'sha256:` + testID + ` ["PATH=/opt/bin:/bin","LANG=C","=x","bad"]\n' ;;
	broken) echo 'latest {' ;;
	docker) echo "Error: No such image: $5" >&2; exit 1 ;;
	down) echo 'Cannot connect to the daemon' >&2; exit 1 ;;
	*) echo "Error: inspecting object: $5: image not known" >&2; exit 125 ;;
	esac ;;
"ps --all") [ ! -e containers ] || cat containers ;;
"create --pull=never") [ ! -e fail-create ] || { echo 'no space' >&2; exit 125; }; echo ` + strings.Repeat("c", 64) + ` | tee -a containers ;;
export*) cat image.tar; [ ! -e fail-export ] || { echo 'export failed' >&2; exit 125; } ;;
rm*) rm containers ;;
*) exit 99 ;;
esac
`
	bin := filepath.Join(dir, "bin")
	err := errors.Join(os.Mkdir(bin, 0o700), shellscript.Write(filepath.Join(bin, "podman"), script), os.WriteFile(filepath.Join(dir, "image.tar"), archive, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return Engine{Name: "podman", Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}}, dir
}

// makeArchive makes an archive: "dir/", "file=content", "link->target" or "hard=>target".
func makeArchive(t testing.TB, entries ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := tar.Header{Name: e, Typeflag: tar.TypeDir, Mode: 0o555, ModTime: time.Unix(1e9, 0)}
		content := ""
		if name, target, is := strings.Cut(e, "=>"); is {
			h.Name, h.Linkname, h.Typeflag = name, target, tar.TypeLink
		} else if name, target, is := strings.Cut(e, "->"); is {
			h.Name, h.Linkname, h.Typeflag = name, target, tar.TypeSymlink
		} else if name, text, is := strings.Cut(e, "="); is {
			h.Name, h.Typeflag, h.Mode, h.Size, content = name, tar.TypeReg, 0o4755, int64(len(text)), text
		} else if name, is := strings.CutSuffix(e, "!"); is {
			h.Name, h.Typeflag = name, tar.TypeBlock
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestInspect(t *testing.T) {
	t.Parallel()
	e, _ := fakeEngine(t, nil)
	image, err := e.Inspect(t.Context(), "known")
	if err != nil || image.ID != testID || strings.Join(image.Env, " ") != "PATH=/opt/bin:/bin LANG=C" {
		t.Errorf("%+v, %v", image, err)
	}
	var missing *MissingError
	if _, err := e.Inspect(t.Context(), "a/b:1"); !errors.As(err, &missing) || missing.FetchCommand() != "podman pull a/b:1" {
		t.Errorf("%v", err)
	}
	if _, err := e.Inspect(t.Context(), "docker"); !errors.As(err, &missing) {
		t.Errorf("in the words of docker: %v", err)
	}
	if _, err := e.Inspect(t.Context(), "down"); err == nil || errors.As(err, &missing) || !strings.Contains(err.Error(), "podman image: Cannot connect") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"broken", "", "-v", "--format", "a b", "a;b", "a\nb", "$(x)", "./x", "/x", "ä"} {
		if _, err := e.Inspect(t.Context(), bad); err == nil || errors.As(err, &missing) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var none *NoEngineError
	if _, err := FindEngine([]string{"PATH=/nonexistent"}, ""); !errors.As(err, &none) || !strings.Contains(err.Error(), "neither podman nor docker") {
		t.Errorf("%v", err)
	}
	if found, err := FindEngine(e.Env, ""); err != nil || found.Name != "podman" {
		t.Errorf("%v, %v", found, err)
	}
}

// TestParseImage parses what engines print: docker has a prefix, and an image may have no variables.
func TestParseImage(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"sha256:" + testID + " null\n": testID, testID + ` ["A=b"]` + "\n": testID, "latest []": "", "": "", "sha256:" + testID: "", "../" + testID + " []": "", testID + ` ["A=b"`: "",
	} {
		image, err := parseImage(answer)
		if image.ID != want || (err == nil) != (want != "") {
			t.Errorf("%s: %+v, %v", answer, image, err)
		}
	}
}

// waitForLocks waits until no child of another test holds a released lock: between fork and exec a child has copies of all descriptors.
func waitForLocks(t *testing.T, d Dir) {
	t.Helper()
	syscall.ForkLock.RLock() // no fork may copy the descriptors that this function opens
	defer syscall.ForkLock.RUnlock()
	for _, dir := range []string{string(d), filepath.Join(string(d), testID)} {
		held, err := lock.AcquireDirExclusive(t.Context(), dir, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUseUnpacksOnce(t *testing.T) {
	t.Parallel()
	e, at := fakeEngine(t, makeArchive(t, "opt/late/x=x", "opt/late/", "./bin/", "bin/sh=shell", "usr/lib/deep/file=deep", "bin/link->sh", "bin/hard=>bin/sh", "dev/sda!", "dev/sdb=>dev/sda"))
	d := Dir(filepath.Join(t.TempDir(), "software"))
	image, err := e.Inspect(t.Context(), "known")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			held, err := d.Use(context.Background(), e, image)
			if err != nil {
				t.Error(err)
				return
			}
			if removed, err := d.Prune(context.Background(), []string{testID}, func() (map[string]bool, error) { return nil, nil }, noCleaning); err != nil || len(removed) > 0 {
				t.Errorf("an image in use was pruned: %v, %v", removed, err)
			}
			if err := held.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	calls, err := os.ReadFile(filepath.Join(at, "calls"))
	if n := strings.Count(string(calls), "export"); err != nil || n != 1 {
		t.Errorf("exported %d times, %v", n, err)
	}
	root := d.Root(testID)
	for name, want := range map[string]string{"bin/sh": "shell", "bin/link": "shell", "bin/hard": "shell", "usr/lib/deep/file": "deep"} {
		if data, err := os.ReadFile(filepath.Join(root, name)); string(data) != want {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	fi, err := os.Stat(filepath.Join(root, "bin/sh"))
	if err != nil || fi.Mode() != 0o755 || !fi.ModTime().Equal(time.Unix(1e9, 0)) {
		t.Errorf("bin/sh: %v, %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(root, "opt/late")); err != nil || fi.Mode().Perm() != 0o755 || !fi.ModTime().Equal(time.Unix(1e9, 0)) {
		t.Errorf("a directory after its file: %v, %v", fi, err)
	}
	if _, err := os.Lstat(filepath.Join(root, "dev/sda")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device: %v", err)
	}
	if env, err := d.Environment(testID); err != nil || strings.Join(env, " ") != "PATH=/opt/bin:/bin LANG=C" {
		t.Errorf("%q, %v", env, err)
	}
	if _, err := os.Stat(filepath.Join(at, "containers")); err == nil {
		t.Error("a container is left")
	}
	if removed, err := d.Prune(t.Context(), []string{testID}, func() (map[string]bool, error) { return map[string]bool{testID: true}, nil }, noCleaning); err != nil || len(removed) > 0 || !d.Has(testID) {
		t.Errorf("pruned what a sandbox uses: %v, %v", removed, err)
	}
	waitForLocks(t, d)
	removed, err := d.Prune(t.Context(), []string{testID}, func() (map[string]bool, error) { return nil, nil }, noCleaning)
	if err != nil || len(removed) != 1 || d.Has(testID) {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := os.Stat(string(d)); err == nil {
		t.Error("an empty directory is left")
	}
}

func TestUseLeavesNothingAfterFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		archive []byte
		file    string
		want    string
	}{
		"create fails":       {makeArchive(t, "a=b"), "fail-create", "no space"},
		"export fails":       {makeArchive(t, "a=b"), "fail-export", "export failed"},
		"a broken archive":   {[]byte("no archive, and long enough to have a header of one" + strings.Repeat(".", 1000)), "", "tar"},
		"cut off at a block": {makeArchive(t, "a=b")[:1024], "", "has no end"},
		"an empty one":       {makeArchive(t), "", "has no files"},
		"a deep path":        {makeArchive(t, strings.Repeat("d/", 300)+"a=b"), "", "too long"},
		"a truncated one":    {makeArchive(t, "a="+strings.Repeat("x", 1<<20))[:1<<19], "", "EOF"},
		"a file outside":     {makeArchive(t, "../a=b"), "", "outside of its root"},
		"through a link":     {makeArchive(t, "up->..", "up/a=b"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, at := fakeEngine(t, c.archive)
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(at, c.file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			top := t.TempDir()
			d := Dir(filepath.Join(top, "software"))
			held, err := d.Use(t.Context(), e, Image{ID: testID})
			if err == nil {
				err = errors.Join(held.Close())
			} else if c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if c.want != "" && (err == nil || d.Has(testID)) {
				t.Error("it succeeded")
			}
			left, err := filepath.Glob(filepath.Join(string(d), unfinishedName+"*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if outside, _ := filepath.Glob(filepath.Join(top, "*")); len(outside) != 1 {
				t.Errorf("written outside: %v", outside)
			}
			if _, err := os.Stat(filepath.Join(at, "containers")); err == nil {
				t.Error("a container is left")
			}
		})
	}
}

// TestPruneAfterKill finds what killed processes have left: an image that was being removed, and one that was being unpacked, whose
// directory stays while the container engine cannot be cleaned up.
func TestPruneAfterKill(t *testing.T) {
	t.Parallel()
	e, _ := fakeEngine(t, makeArchive(t, "bin/sh=shell"))
	d := Dir(filepath.Join(t.TempDir(), "software"))
	held, err := d.Use(t.Context(), e, Image{ID: testID})
	if err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(string(d), unfinishedName+strings.Repeat("a", 64))
	if err := errors.Join(held.Close(), os.MkdirAll(filepath.Join(string(d), removedName+testID, rootName), 0o700), os.Mkdir(unfinished, 0o700)); err != nil {
		t.Fatal(err)
	}
	unused := func() (map[string]bool, error) { return nil, nil }
	waitForLocks(t, d)
	if _, err := d.Prune(t.Context(), []string{testID}, unused, func() error { return errors.New("no daemon") }); err == nil || !strings.Contains(err.Error(), "no daemon") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("nothing says any more that a container is left: %v", err)
	}
	waitForLocks(t, d)
	removed, err := d.Prune(t.Context(), []string{testID, strings.Repeat("b", 64)}, unused, noCleaning)
	if _, statErr := os.Stat(string(d)); err != nil || len(removed) != 1 || statErr == nil {
		t.Errorf("%q, %v, %v", removed, err, statErr)
	}
}

// TestUseAfterDamage finds images of which something else has removed a part.
func TestUseAfterDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(dir string) error{
		"no root":        func(dir string) error { return os.RemoveAll(filepath.Join(dir, rootName)) },
		"no environment": func(dir string) error { return os.Remove(filepath.Join(dir, environmentName)) },
		"a file":         func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
		"a link": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, rootName)), os.Symlink("/", filepath.Join(dir, rootName)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := fakeEngine(t, makeArchive(t, "bin/sh=shell"))
			d := Dir(t.TempDir())
			for range 2 {
				held, err := d.Use(t.Context(), e, Image{ID: testID})
				if err != nil {
					t.Fatal(err)
				}
				if err := held.Close(); err != nil {
					t.Fatal(err)
				}
				if data, err := os.ReadFile(filepath.Join(d.Root(testID), "bin/sh")); string(data) != "shell" {
					t.Fatalf("%q, %v", data, err)
				}
				if err := damage(filepath.Join(string(d), testID)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestUseAfterKill finds what a killed process has left: a directory that is half full, and a container.
func TestUseAfterKill(t *testing.T) {
	t.Parallel()
	e, at := fakeEngine(t, makeArchive(t, "bin/sh=shell"))
	d := Dir(t.TempDir())
	half := filepath.Join(string(d), unfinishedName+testID, rootName, "bin")
	err := errors.Join(os.MkdirAll(half, 0o700), os.WriteFile(filepath.Join(half, "sh"), []byte("ha"), 0o400), os.Chmod(half, 0o500),
		os.WriteFile(filepath.Join(at, "containers"), []byte(strings.Repeat("a", 64)+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	held, err := d.Use(t.Context(), e, Image{ID: testID})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if data, err := os.ReadFile(filepath.Join(d.Root(testID), "bin/sh")); string(data) != "shell" {
		t.Errorf("%q, %v", data, err)
	}
	if calls, err := os.ReadFile(filepath.Join(at, "calls")); err != nil || !strings.Contains(string(calls), "rm --volumes "+strings.Repeat("a", 64)) {
		t.Errorf("the container of the killed process is left: %s, %v", calls, err)
	}
	if err := checkID("../../x"); err == nil {
		t.Error("a path is an id")
	}
}

// TestUseRacesPrune uses an image while another process prunes it, and the directory that is empty then.
func TestUseRacesPrune(t *testing.T) {
	t.Parallel()
	e, _ := fakeEngine(t, makeArchive(t, "bin/sh=shell"))
	d := Dir(filepath.Join(t.TempDir(), "software"))
	stop, pruned := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				pruned <- nil
				return
			default:
			}
			if _, err := d.Prune(context.Background(), []string{testID}, func() (map[string]bool, error) { return nil, nil }, noCleaning); err != nil {
				pruned <- err
				return
			}
		}
	}()
	for range 20 {
		held, err := d.Use(t.Context(), e, Image{ID: testID})
		if err != nil {
			t.Error(err)
			break
		}
		if data, err := os.ReadFile(filepath.Join(d.Root(testID), "bin/sh")); string(data) != "shell" {
			t.Errorf("%q, %v", data, err)
		}
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-pruned; err != nil {
		t.Error(err)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add([]byte("x"))
	f.Add(makeArchive(f, "a/", "a/b=c", "l->../x", "a/h=>a/b", "../up=x", "l/y=z"))
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		root := filepath.Join(top, "root")
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = extract(bytes.NewReader(data), root) // most are no archives
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
			t.Errorf("written outside: %v, %v", entries, err)
		}
	})
}
