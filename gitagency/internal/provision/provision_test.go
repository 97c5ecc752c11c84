package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// find lists the entries that patterns select in the main worktree of a fixture; directories end in a slash.
func find(l *gittest.Fixture, patterns ...string) (Selection, []string) {
	l.T.Helper()
	found, err := Find(l.T.Context(), repotest.OpenRepo(l), Request{Tree: l.Root, GitDir: filepath.Join(l.Root, ".git"), Patterns: patterns})
	l.Must(err)
	names := []string{}
	for _, e := range found.entries {
		if e.isDir {
			e.name += "/"
		}
		names = append(names, e.name)
	}
	return found, names
}

func TestFindSelectsIgnoredFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, name := range []string{
		".env", "sub/.env", "node_modules/.env", "node_modules/a/f", "build/x/keep", "build/y/keep", "mixed/tracked", "mixed/out/f", "mixed/.env",
		"config/local.yml", "config/local.json", "config/other.yml", "untracked/f",
	} {
		l.Write(name, name)
	}
	l.Write(".gitignore", ".env\nnode_modules\nbuild/\n/mixed/\n*.yml\nlocal.*\n")
	l.Git("add", ".gitignore")
	l.Git("add", "-f", "mixed/tracked", "config/other.yml")
	l.Git("commit", "-q", "-m", "files")
	for _, c := range []struct {
		patterns   string
		want       string
		notIgnored string
		unmatched  string
	}{
		{".env", ".env mixed/.env sub/.env", "", ""},
		{"/.env", ".env", "", ""},
		{"**/.env", ".env mixed/.env node_modules/.env sub/.env", "", ""},
		{"node_modules", "node_modules/", "", ""},
		{"node_modules/ .env !/.env", "mixed/.env node_modules/ sub/.env", "", ""},
		{"build/*/keep", "build/x/keep build/y/keep", "", ""},
		{"build/x", "build/x/", "", ""},
		{"build/x/ !build/x", "", "", ""},
		{"mixed", "mixed/.env mixed/out/", "", ""},
		{"config", "config/local.json config/local.yml", "", ""},
		{"config/local.* !*.json", "config/local.yml", "", ""},
		{"config/other.yml", "", "", ""}, // tracked
		{"untracked", "", "untracked/f", ""},
		{"* !node_modules", ".env build/ config/local.json config/local.yml mixed/.env mixed/out/ sub/.env", "untracked/f", ""},
		{"build .env build/none /build/x !build/no missing/x", ".env build/ mixed/.env sub/.env", "", "missing/x"},
		{"missing .git .git/config", "", "", "missing .git .git/config"},
	} {
		found, names := find(l, strings.Fields(c.patterns)...)
		if want := strings.Fields(c.want); !slices.Equal(names, want) {
			t.Errorf("%s: selected %q, want %q", c.patterns, names, want)
		}
		if want := strings.Fields(c.notIgnored); !slices.Equal(found.NotIgnored, want) {
			t.Errorf("%s: not ignored %q, want %q", c.patterns, found.NotIgnored, want)
		}
		if want := strings.Fields(c.unmatched); !slices.Equal(found.Unmatched, want) {
			t.Errorf("%s: unmatched %q, want %q", c.patterns, found.Unmatched, want)
		}
	}
}

// Programs of the user go on writing while a sandbox starts, and replace directories by symlinks that lead elsewhere.
func TestCopyToToleratesFilesThatChange(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write(".git/info/exclude", "node_modules\n")
	modules, outside := filepath.Join(l.Root, "node_modules"), gittest.TempDir(t)
	l.WriteIn(outside, "file0", "outside")
	for i := range 10 {
		for j := range 20 {
			l.WriteIn(modules, fmt.Sprintf("dir%d/file%d", i, j), "inside")
		}
	}
	found, _ := find(l, "node_modules")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			dir, aside := filepath.Join(modules, fmt.Sprint("dir", i%10)), filepath.Join(modules, "aside")
			_ = os.Rename(dir, aside)
			_ = os.Symlink(outside, dir)
			_ = os.Remove(dir)
			_ = os.Rename(aside, dir)
			file := filepath.Join(dir, fmt.Sprint("file", i%20))
			_ = os.Remove(file)
			_ = os.WriteFile(file, []byte("inside"), 0o644)
		}
	}()
	for range 30 {
		to := gittest.TempDir(t)
		_, err := found.CopyTo(t.Context(), repotest.OpenRepo(l), Destination{Tree: to})
		l.Must(err)
		l.Must(filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if data, err := os.ReadFile(path); err != nil || string(data) == "outside" {
				t.Errorf("%s: %q, %v", path, data, err)
			}
			return nil
		}))
	}
	stop()
	<-done
}

func TestCopyToEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write(".git/info/exclude", "node_modules\n")
	for i := range 100 {
		l.Write(fmt.Sprintf("node_modules/%d/file", i), "x")
	}
	found, _ := find(l, "node_modules")
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	copied := 0
	_, err := found.CopyTo(ctx, repotest.OpenRepo(l), Destination{Tree: gittest.TempDir(t), Progress: func(p Progress) {
		copied = p.Files
		stop(stopped)
	}})
	if !errors.Is(err, stopped) || copied > 50 {
		t.Errorf("copied %d files, %v", copied, err)
	}
}

func TestTreeCopyCopiesEverythingReadable(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, name := range []string{"file", "script", ".git/config", "sub/.git/HEAD", "sub/deep/file", "mnt/file", "one"} {
		l.Write("from/"+name, name)
	}
	from, into := filepath.Join(l.Root, "from"), filepath.Join(l.Root, "into")
	l.Must(os.Chmod(filepath.Join(from, "script"), 0o751))
	l.Must(os.Chmod(filepath.Join(from, "file"), 0o604))
	l.Must(os.Symlink("/etc", filepath.Join(from, "link")))
	l.Must(os.Mkdir(filepath.Join(from, "empty"), 0o755))
	l.Must(syscall.Mkfifo(filepath.Join(from, "sub/pipe"), 0o644))
	old := time.Unix(1_000_000_000, 0)
	l.Must(os.Chtimes(filepath.Join(from, "sub/deep/file"), old, old))
	l.Must(os.Chtimes(filepath.Join(from, "sub/deep"), old, old))
	l.Must(os.Chmod(filepath.Join(from, "sub/deep"), 0o555))
	l.Must(os.Mkdir(into, 0o700))
	special, err := TreeCopy{From: from, Into: into, Omit: func(path string) bool { return path == "mnt" || path == "one" }}.Copy(t.Context())
	if l.Must(err); !slices.Equal(special, []string{"sub/pipe"}) {
		t.Errorf("not copied: %q", special)
	}
	l.Must(os.Chmod(filepath.Join(from, "sub/deep"), 0o755)) // so that the test can remove it
	var found []string
	l.Must(filepath.Walk(into, func(path string, fi os.FileInfo, err error) error {
		line := strings.TrimPrefix(path, into) + " " + fi.Mode().String()
		if fi.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			l.Must(err)
			line += " " + string(text)
		}
		if fi.ModTime().Equal(old) {
			line += " old"
		}
		found = append(found, line)
		return err
	}))
	l.Must(os.Chmod(filepath.Join(into, "sub/deep"), 0o755))
	want := []string{
		" drwxr-xr-x", "/.git drwxr-xr-x", "/.git/config -rw-r--r-- .git/config", "/empty drwxr-xr-x", "/file -rw----r-- file", "/link Lrwxrwxrwx", "/mnt drwxr-xr-x",
		"/one -rw-r--r-- ", "/script -rwxr-x--x script", "/sub drwxr-xr-x", "/sub/.git drwxr-xr-x", "/sub/.git/HEAD -rw-r--r-- sub/.git/HEAD",
		"/sub/deep dr-xr-xr-x old", "/sub/deep/file -rw-r--r-- sub/deep/file old",
	}
	if !slices.Equal(found, want) {
		t.Errorf("copied\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (TreeCopy{From: from, Into: into}).Copy(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}
