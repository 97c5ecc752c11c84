package setup

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteFileReplacesSymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	writeText(t, target, "theirs")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(link, []byte("ours"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := listTree(t, dir); got["target"] != "theirs" || got["link"] != "ours" || len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

func TestFailedWriteFileLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "full", "file"), "theirs")
	before := listTree(t, dir)
	for _, name := range []string{"full", "none/file"} {
		if err := writeFile(filepath.Join(dir, name), []byte("ours"), 0o644); err == nil {
			t.Errorf("%s was written", name)
		}
		checkSameTree(t, before, listTree(t, dir))
	}
}

func TestReadFileRefusesLinksPipesAndLargeFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	writeText(t, file, "12345")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := readFile(file, 5); err != nil || string(data) != "12345" {
		t.Errorf("got %q, %v", data, err)
	}
	for path, limit := range map[string]int64{file: 4, link: 5, pipe: 5, dir: 5} {
		if data, err := readFile(path, limit); err == nil {
			t.Errorf("%s: got %q", path, data)
		}
	}
}

func TestResolveFollowsLinksOfMissingPath(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	makeDir(t, filepath.Join(dir, "real"))
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := resolve(filepath.Join(dir, "link", "a", "b")); err != nil || got != filepath.Join(dir, "real", "a", "b") {
		t.Errorf("got %s, %v", got, err)
	}
}
