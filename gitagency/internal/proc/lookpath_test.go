package proc

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLookPathFindsFirstExecutable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, mode := range map[string]fs.FileMode{
		"plain/tool": 0o644, "first/tool": 0o755, "second/tool": 0o755, "second/only": 0o755,
	} {
		writeProgram(t, filepath.Join(root, path), mode)
	}
	must(t, os.MkdirAll(filepath.Join(root, "dirs", "tool"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "pipes"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(root, "pipes", "tool"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "links"), 0o755))
	must(t, os.Symlink("../first/tool", filepath.Join(root, "links", "linked")))
	must(t, os.Symlink("nowhere", filepath.Join(root, "links", "tool")))

	path := func(dirs ...string) string {
		for i, d := range dirs {
			dirs[i] = filepath.Join(root, d)
		}
		return "PATH=" + strings.Join(dirs, ":")
	}
	for _, c := range []struct {
		env     []string
		program string
		want    string // relative to root; empty: not found
	}{
		{[]string{path("first", "second")}, "tool", "first/tool"},
		{[]string{path("second", "first")}, "tool", "second/tool"},
		{[]string{path("first", "second")}, "only", "second/only"},
		{[]string{path("nowhere", "plain", "dirs", "pipes", "links", "second")}, "tool", "second/tool"},
		{[]string{path("links")}, "linked", "links/linked"},
		{[]string{path("first"), path("second")}, "tool", "second/tool"}, // the last PATH wins
		{[]string{path("plain")}, "tool", ""},
		{[]string{path("first")}, "", ""},
		{[]string{path(".")}, "first/tool", ""}, // a relative path is not looked up
		{[]string{"PATH="}, "tool", ""},
		{nil, "sh", ""}, // the PATH of this process is not used
		{nil, filepath.Join(root, "first/tool"), "first/tool"},
		{nil, filepath.Join(root, "plain/tool"), ""},
		{nil, filepath.Join(root, "dirs/tool"), ""},
		{nil, filepath.Join(root, "pipes/tool"), ""},
		{nil, filepath.Join(root, "nowhere/tool"), ""},
	} {
		got, err := LookPath(c.env, c.program)
		want := ""
		if c.want != "" {
			want = filepath.Join(root, c.want)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s with %q: got %q, %v; want %q", c.program, c.env, got, err, want)
		}
	}
}

// TestLookPathIgnoresCurrentDirectory protects against programs in a tree that an agent wrote.
func TestLookPathIgnoresCurrentDirectory(t *testing.T) {
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "tool"), 0o755)
	writeProgram(t, filepath.Join(dir, "bin", "tool"), 0o755)
	t.Chdir(dir)
	for _, path := range []string{"", ".", ":", "bin", "./bin", ":bin:./:"} {
		if got, err := LookPath([]string{"PATH=" + path}, "tool"); err == nil {
			t.Errorf("PATH=%s: got %q, %v", path, got, err)
		}
	}
}

// writeProgram writes a shell script with the given mode.
func writeProgram(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"), mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
