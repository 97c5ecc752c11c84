package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openTop opens a directory as a tree.
func openTop(t testing.TB, dir string) *guard.DirHandle {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	must(t, err)
	tree, err := guard.OpenTree(dir)
	must(t, err)
	top, err := tree.OpenTop()
	must(t, errors.Join(err, tree.Close()))
	t.Cleanup(func() { _ = top.Close() })
	return top
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func keepAll(Entry) Choice { return KeepAll }

// pack writes all of a directory to an archive.
func pack(t testing.TB, dir, archive string, o Options) (Result, error) {
	t.Helper()
	top := openTop(t, dir)
	files, err := Scan(t.Context(), top, keepAll)
	must(t, err)
	if o.Limit == 0 {
		o.Limit = 1 << 30
	}
	return Write(t.Context(), archive, []Section{{Name: "tree", Top: top, Files: files, Whole: true}}, o)
}

// describe lists the entries of a directory with their content.
func describe(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fi, err := d.Info()
		must(t, err)
		line := fmt.Sprintf("%q %s", rel, fi.Mode())
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			must(t, err)
			line += " -> " + to
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			must(t, err)
			line += fmt.Sprintf(" %q", data)
		}
		lines = append(lines, line)
		return nil
	}))
	return strings.Join(lines, "\n")
}

// makeTree makes entries of every kind that an archive restores.
func makeTree(t testing.TB, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "file"), "content\n")
	write(t, filepath.Join(dir, "empty-file"), "")
	write(t, filepath.Join(dir, "block"), strings.Repeat("x", blockSize))
	write(t, filepath.Join(dir, "dir", "run"), "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(dir, "dir", "run"), 0o750))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	must(t, os.Symlink("../../outside", filepath.Join(dir, "link")))
	must(t, os.Symlink("\xff\n=", filepath.Join(dir, "link2")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "same")))
	for _, name := range []string{"\xff\xfe", "new\nline", "12 path=x\n", "ä", " ", strings.Repeat("n", 101), strings.Repeat("\xe4", 250), "a\\b", "-rf", "..."} {
		write(t, filepath.Join(dir, "names", name), name)
	}
}

// An archive restores the same names, contents, permissions and links.
func TestUnpackRestoresWhatWasWritten(t *testing.T) {
	t.Parallel()
	from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	makeTree(t, from)
	result, err := pack(t, from, archive, Options{})
	must(t, err)
	fi, err := os.Stat(archive)
	must(t, err)
	if fi.Size() != result.Size || fi.Mode().Perm() != 0o600 || len(result.Lost) > 0 {
		t.Errorf("the file has %d bytes, mode %s: %+v", fi.Size(), fi.Mode(), result)
	}
	skipped, err := Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
	if err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	if got, want := describe(t, to), describe(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	one, err := os.Stat(filepath.Join(to, "file"))
	must(t, err)
	if two, err := os.Stat(filepath.Join(to, "same")); err != nil || !os.SameFile(one, two) {
		t.Errorf("the hard link was not restored: %v", err)
	}
	if sections, err := Sections(t.Context(), archive); err != nil || !sections["tree"] || len(sections) != 1 {
		t.Errorf("sections %v, %v", sections, err)
	}
}

// The tar program extracts the same files from an archive, sparse ones included.
func TestTarExtractsArchive(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("tar", "--version").Output(); err != nil || !bytes.Contains(out, []byte("GNU tar")) {
		t.Skip("there is no GNU tar")
	}
	from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	makeTree(t, from)
	makeSparse(t, filepath.Join(from, "sparse"), 1<<22)
	_, err := pack(t, from, archive, Options{})
	must(t, err)
	cmd := exec.Command("tar", "-xpf", archive, "-C", to)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if got, want := describe(t, filepath.Join(to, "tree")), describe(t, from); got != want {
		t.Errorf("the files differ")
	}
}

func makeSparse(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for _, at := range []int64{size / 2, size - size/4} {
		_, err = f.WriteAt([]byte("data"), at)
		must(t, err)
	}
	must(t, f.Truncate(size))
}

// A sparse file needs the room of its data in an archive, and has its holes again afterwards.
func TestSparseFilesAreStoredWithoutHoles(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"with data": 1 << 40, "without data": -1 << 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
			if size < 0 {
				size = -size
				write(t, filepath.Join(from, "sparse"), "")
				must(t, os.Truncate(filepath.Join(from, "sparse"), size))
			} else {
				makeSparse(t, filepath.Join(from, "sparse"), size)
			}
			result, err := pack(t, from, archive, Options{})
			must(t, err)
			if result.Size > 1<<20 {
				t.Fatalf("the archive has %d bytes", result.Size)
			}
			_, err = Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
			must(t, err)
			restored, err := os.Open(filepath.Join(to, "sparse"))
			must(t, err)
			defer restored.Close()
			fi, err := guard.Fstat(restored)
			must(t, err)
			if fi.Size != size || fi.Allocated > 1<<20 {
				t.Errorf("restored: %+v", fi)
			}
			got := make([]byte, 4)
			if _, err := restored.ReadAt(got, size/2); err != nil || (name == "with data") != (string(got) == "data") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// The depth of a tree and the length of its paths are not limited by the system.
func TestDeepTreeIsRestored(t *testing.T) {
	t.Parallel()
	from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	const levels = 400
	name := strings.Repeat("d", 100)
	visit := func(dir string, last func(*os.Root), each func(*os.Root)) {
		at, err := os.OpenRoot(dir)
		must(t, err)
		for range levels {
			each(at)
			next, err := at.OpenRoot(name)
			must(t, errors.Join(err, at.Close()))
			at = next
		}
		last(at)
		must(t, at.Close())
	}
	visit(from, func(r *os.Root) { must(t, r.WriteFile("deep", []byte("deep"), 0o644)) }, func(r *os.Root) { must(t, r.Mkdir(name, 0o755)) })
	t.Cleanup(func() { // t.TempDir removes by path
		for _, dir := range []string{from, to} {
			_ = openTop(t, dir).RemoveAll(name)
		}
	})
	_, err := pack(t, from, archive, Options{})
	must(t, err)
	_, err = Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
	must(t, err)
	visit(to, func(r *os.Root) {
		if data, err := r.ReadFile("deep"); string(data) != "deep" {
			t.Errorf("%q, %v", data, err)
		}
	}, func(*os.Root) {})
}

// Files and directories without permissions are archived, and the owner has access to what is restored.
func TestUnreadableFilesAreArchived(t *testing.T) {
	t.Parallel()
	from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	write(t, filepath.Join(from, "closed", "deep", "file"), "x")
	must(t, os.Chmod(filepath.Join(from, "closed", "deep", "file"), 0))
	must(t, os.Chmod(filepath.Join(from, "closed", "deep"), 0o400))
	must(t, os.Chmod(filepath.Join(from, "closed"), 0))
	t.Cleanup(func() {
		for _, path := range []string{"closed", "closed/deep"} {
			_ = os.Chmod(filepath.Join(from, path), 0o700)
		}
	})
	_, err := pack(t, from, archive, Options{})
	must(t, err)
	_, err = Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
	must(t, err)
	if data, err := os.ReadFile(filepath.Join(to, "closed", "deep", "file")); string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}

// An archive above the limit is refused and not written; with Force the files that fit are kept and the others named.
func TestWriteRespectsLimit(t *testing.T) {
	t.Parallel()
	from, archive := t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	write(t, filepath.Join(from, "a-large"), strings.Repeat("x", 1<<20))
	write(t, filepath.Join(from, "small"), "s")
	_, err := pack(t, from, archive, Options{Limit: 1 << 16})
	var large *TooLargeError
	if !errors.As(err, &large) || large.Largest.Path != "tree/a-large" || large.Size < 1<<20 || large.Limit != 1<<16 {
		t.Fatalf("%v", err)
	}
	if names, err := os.ReadDir(filepath.Dir(archive)); err != nil || len(names) > 0 {
		t.Fatalf("files are left: %v, %v", names, err)
	}
	result, err := pack(t, from, archive, Options{Limit: 1 << 16, Force: true})
	must(t, err)
	if len(result.Lost) != 1 || result.Lost[0].Path != "tree/a-large" || result.Size > 1<<16 {
		t.Errorf("%+v", result)
	}
}

// Extending an archive keeps its entries, adds those that are new or changed, and changes nothing if there are none.
func TestWriteExtendsArchive(t *testing.T) {
	t.Parallel()
	from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
	makeTree(t, from)
	makeSparse(t, filepath.Join(from, "sparse"), 1<<20)
	first, err := pack(t, from, archive, Options{})
	must(t, err)
	again, err := pack(t, from, archive, Options{})
	must(t, err)
	if !first.New || again.New || again.Size != first.Size {
		t.Errorf("%+v, then %+v", first, again)
	}
	must(t, os.Remove(filepath.Join(from, "block")))
	write(t, filepath.Join(from, "dir", "run"), "changed")
	more, err := pack(t, from, archive, Options{})
	must(t, err)
	if !more.New || more.Size > first.Size+2*blockSize {
		t.Errorf("%+v, then %+v", first, more)
	}
	write(t, filepath.Join(from, "block"), strings.Repeat("x", blockSize)) // the archive still has it
	_, err = Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
	must(t, err)
	if got, want := describe(t, to), describe(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A cancelled Write leaves nothing.
func TestCancelledWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	from, dir := t.TempDir(), t.TempDir()
	makeTree(t, from)
	top := openTop(t, from)
	files, err := Scan(t.Context(), top, keepAll)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Write(ctx, filepath.Join(dir, "a.tar"), []Section{{Name: "tree", Top: top, Files: files}}, Options{Limit: 1 << 30})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("files are left: %v, %v", names, err)
	}
}

// hostileArchives are archives that package archive did not write.
func hostileArchives(t testing.TB) map[string][]byte {
	archives := map[string][]byte{"empty": nil, "text": []byte(strings.Repeat("text", 400))}
	for name, headers := range map[string][]tar.Header{
		"..":               {{Name: "tree/../escaped", Typeflag: tar.TypeReg}},
		".. at the end":    {{Name: "tree/a/..", Typeflag: tar.TypeReg}},
		"absolute":         {{Name: "tree//escaped", Typeflag: tar.TypeReg}},
		"through a link":   {{Name: "tree/a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "tree/a/escaped", Typeflag: tar.TypeReg}},
		"over a link":      {{Name: "tree/a", Typeflag: tar.TypeSymlink, Linkname: "../escaped"}, {Name: "tree/a", Typeflag: tar.TypeReg}},
		"directory link":   {{Name: "tree/a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "tree/a/", Typeflag: tar.TypeDir, Mode: 0o777}},
		"hard link out":    {{Name: "tree/a", Typeflag: tar.TypeLink, Linkname: "tree/../outside"}},
		"hard link by one": {{Name: "tree/s", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "tree/a", Typeflag: tar.TypeLink, Linkname: "tree/s/outside"}},
		"link to a link":   {{Name: "tree/s", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "tree/a", Typeflag: tar.TypeLink, Linkname: "tree/s"}},
		"twice":            {{Name: "tree/a/b", Typeflag: tar.TypeReg}, {Name: "tree/a", Typeflag: tar.TypeReg}, {Name: "tree/a/b", Typeflag: tar.TypeReg}},
		"setuid":           {{Name: "tree/a", Typeflag: tar.TypeReg, Mode: 0o6755}, {Name: "tree/d/", Typeflag: tar.TypeDir, Mode: 0o7777}},
		"device":           {{Name: "tree/a", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"of another":       {{Name: "other/a", Typeflag: tar.TypeReg}, {Name: "trees/a", Typeflag: tar.TypeReg}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			must(t, w.WriteHeader(&h))
		}
		must(t, w.Close())
		archives[name] = b.Bytes()
	}
	f := File{Path: "a", Info: guard.Info{Mode: 0o644, Size: 1 << 62}}
	archives["huge"] = append(header("tree/a", f, ""), make([]byte, trailer)...)
	f.data = []segment{{0, 1 << 61}, {1 << 62, 0}}
	archives["huge sparse"] = append(header("tree/a", f, ""), make([]byte, trailer)...)
	return archives
}

// unpackHostile unpacks an archive, and fails if anything outside of the tree, or special, was created.
func unpackHostile(t testing.TB, data []byte) error {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "outside"), "outside")
	must(t, os.Mkdir(filepath.Join(dir, "tree"), 0o755))
	archive := filepath.Join(t.TempDir(), "a.tar")
	must(t, os.WriteFile(archive, data, 0o600))
	_, err := Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, filepath.Join(dir, "tree"))})
	names, readErr := os.ReadDir(dir)
	must(t, readErr)
	outside, readErr := os.Stat(filepath.Join(dir, "outside"))
	must(t, readErr)
	content, readErr := os.ReadFile(filepath.Join(dir, "outside"))
	must(t, readErr)
	if len(names) != 2 || string(content) != "outside" || outside.Sys().(*syscall.Stat_t).Nlink != 1 || outside.Mode() != 0o644 {
		t.Errorf("reached out of the tree: %v, %q, %+v", names, content, outside)
	}
	_ = filepath.WalkDir(filepath.Join(dir, "tree"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint // a path beyond PATH_MAX
		}
		if fi, err := d.Info(); err == nil && fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|fs.ModeDevice|fs.ModeSocket) != 0 {
			t.Errorf("%s has mode %s", path, fi.Mode())
		}
		return nil
	})
	return err
}

// A hostile archive never reaches out of the tree.
func TestUnpackStaysInTree(t *testing.T) {
	t.Parallel()
	valid := []string{"empty", "through a link", "over a link", "directory link", "twice", "setuid", "device", "of another"}
	for name, data := range hostileArchives(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := unpackHostile(t, data); (err == nil) != slices.Contains(valid, name) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	for _, data := range hostileArchives(f) {
		f.Add(data)
	}
	from, archive := f.TempDir(), filepath.Join(f.TempDir(), "a.tar")
	makeTree(f, from)
	makeSparse(f, filepath.Join(from, "sparse"), 1<<20)
	_, err := pack(f, from, archive, Options{})
	must(f, err)
	data, err := os.ReadFile(archive)
	must(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) { _ = unpackHostile(t, data) })
}

// Force leaves out a file that cannot be read, and the archive holds its next hard link as a file.
func TestForceKeepsOtherNamesOfLostFile(t *testing.T) {
	t.Parallel()
	for name, extends := range map[string]bool{"new archive": false, "extended archive": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to, archive := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a.tar")
			first := filepath.Join(from, "a")
			if extends {
				write(t, first, "before\n")
				_, err := pack(t, from, archive, Options{})
				must(t, err)
			}
			write(t, first, "content\n")
			must(t, os.Link(first, filepath.Join(from, "b")))
			must(t, os.Link(first, filepath.Join(from, "c")))
			top := openTop(t, from)
			files, err := Scan(t.Context(), top, keepAll)
			must(t, err)
			must(t, os.Remove(first))
			result, err := Write(t.Context(), archive, []Section{{Name: "tree", Top: top, Files: files}}, Options{Limit: 1 << 20, Force: true})
			must(t, err)
			if fi, err := os.Stat(archive); err != nil || fi.Size() != result.Size || len(result.Lost) != 1 || result.Lost[0].Path != "tree/a" {
				t.Errorf("%+v; the file has %d bytes: %v", result, fi.Size(), err)
			}
			skipped, err := Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
			if err != nil || len(skipped) > 0 {
				t.Fatal(skipped, err)
			}
			if data, err := os.ReadFile(filepath.Join(to, "b")); string(data) != "content\n" {
				t.Errorf("%q, %v", data, err)
			}
			b, err := os.Stat(filepath.Join(to, "b"))
			must(t, err)
			if c, err := os.Stat(filepath.Join(to, "c")); err != nil || !os.SameFile(b, c) {
				t.Errorf("the hard link was not restored: %v", err)
			}
		})
	}
}

// Unpack skips a hard link to an entry that the archive does not hold, and writes all others.
func TestUnpackSkipsLinkToMissingEntry(t *testing.T) {
	t.Parallel()
	archive, to := filepath.Join(t.TempDir(), "a.tar"), t.TempDir()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "tree/one", Typeflag: tar.TypeLink, Linkname: "tree/lost"},
		{Name: "tree/two", Typeflag: tar.TypeLink, Linkname: "tree/no/lost"},
		{Name: "tree/file", Typeflag: tar.TypeReg, Mode: 0o600},
	} {
		must(t, w.WriteHeader(&h))
	}
	must(t, w.Close())
	must(t, os.WriteFile(archive, b.Bytes(), 0o600))
	skipped, err := Unpack(t.Context(), archive, UnpackRequest{Section: "tree", Top: openTop(t, to)})
	if err != nil || len(skipped) != 2 || skipped[0].Path != "one" || skipped[1].Path != "two" {
		t.Errorf("%+v, %v", skipped, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "file")); err != nil {
		t.Error(err)
	}
}
