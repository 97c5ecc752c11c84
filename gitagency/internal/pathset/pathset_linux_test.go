package pathset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// lab is a home directory with directories to make sandboxes over.
type lab struct {
	t    *testing.T
	home string
	repo *core.Repository
}

func newLab(t *testing.T, files ...string) *lab {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, home: home}
	for _, name := range files {
		l.write(name, filepath.Base(name)+"\n")
	}
	opts := core.Options{
		Dir: home, Warn: func(message string) { t.Error(message) },
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENCY_DATA_DIR=" + filepath.Join(home, "data"), "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR=/nowhere"},
	}
	l.repo, err = Open(t.Context(), opts)
	l.must(err)
	return l
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) write(name, content string) {
	l.t.Helper()
	path := filepath.Join(l.home, name)
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.must(os.WriteFile(path, []byte(content), 0o644))
}

func (l *lab) start(paths ...string) core.Invocation {
	l.t.Helper()
	inv, err := Start(l.t.Context(), l.repo, StartRequest{Paths: paths})
	l.must(err)
	return inv
}

// data lists the paths in the data directory, without objects.
func (l *lab) data() (paths []string) {
	l.t.Helper()
	l.must(filepath.WalkDir(filepath.Join(l.home, "data"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "objects" || d.Name() == "agency"):
			return fs.SkipDir
		}
		paths = append(paths, strings.TrimPrefix(path, l.home+"/"))
		return nil
	}))
	return paths
}

func TestStartRefusesUnsafePaths(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a/sub/x", "b/y", "file", "repo.git/HEAD", "marked/.agency/INTEGRATION_MARKER", "owner/.agency/SANDBOX_MARKER")
	l.must(os.Symlink("a", filepath.Join(l.home, "link")))
	l.must(os.MkdirAll(filepath.Join(l.home, "repo.git/objects"), 0o755))
	l.must(os.MkdirAll(filepath.Join(l.home, "repo.git/refs"), 0o755))
	l.must(os.WriteFile(filepath.Join(l.home, "repo.git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	l.must(os.MkdirAll(filepath.Join(l.home, "owner/tree"), 0o755))
	invalid, unsafe := fault.Is[*fault.InvalidError], fault.Is[*fault.UnsafePathError]
	for _, c := range []struct {
		paths []string
		want  func(error) bool
	}{
		{[]string{"a", "a"}, unsafe},
		{[]string{"a", "link"}, unsafe},
		{[]string{"a", "a/sub"}, unsafe},
		{[]string{"a/sub", "b/../a"}, unsafe},
		{[]string{"."}, unsafe}, // contains the data directory
		{[]string{"data/x"}, invalid},
		{[]string{"marked"}, unsafe},
		{[]string{"owner/tree"}, unsafe},
		{[]string{"repo.git"}, unsafe},
		{[]string{"repo.git/objects"}, unsafe},
		{[]string{""}, invalid},
		{[]string{"a\nb"}, invalid},
		{[]string{"none"}, invalid},
		{[]string{"file"}, invalid},
		{[]string{"/"}, invalid},
		{[]string{"a", "none"}, invalid},
		{[]string{"/proc/self"}, func(err error) bool { return err != nil }},
		{slices.Repeat([]string{"a"}, maxPaths+1), invalid},
	} {
		if _, err := Start(t.Context(), l.repo, StartRequest{Paths: c.paths}); !c.want(err) {
			t.Errorf("%q: %v", c.paths, err)
		}
	}
	for _, prims := range []store.Primitives{{Isolation: settings.IsolationNone}, {Changeset: settings.ChangesetWorktree}} {
		if _, err := Start(t.Context(), l.repo, StartRequest{Paths: []string{"a"}, Primitives: prims}); !fault.Is[*fault.UnsupportedError](err) {
			t.Errorf("%+v: %v", prims, err)
		}
	}
	if left := l.data(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestFailedStartLeavesNoSandbox(t *testing.T) {
	t.Parallel()
	t.Run("overlay", func(t *testing.T) { t.Parallel(); failStarts(t, func(*lab) {}) })
	t.Run("copy", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("only root can give a directory to another user")
		}
		failStarts(t, func(l *lab) {
			l.repo.Opts.Warn = func(string) {}
			l.must(os.Chown(filepath.Join(l.home, "a"), 12345, 12345))
		})
	})
}

// failStarts starts sandboxes over a directory that prepare has prepared, and lets each step fail in turn.
func failStarts(t *testing.T, prepare func(*lab)) {
	l := newLab(t, "a/x")
	prepare(l)
	l.must(ensureRepositories(l.repo))
	_, unlock, err := l.repo.LockAndRecover(t.Context()) // makes the files of the lock
	l.must(err)
	unlock()
	_, err = captureBase(t.Context(), l.repo, []store.PathMeta{{Given: "a", Path: filepath.Join(l.home, "a")}}, &copySet{repo: l.repo})
	l.must(err)
	var steps []string
	record := func(_ context.Context, point string) error { steps = append(steps, point); return nil }
	l.repo.Opts.Fault = record
	inv := l.start("a")
	l.repo.Opts.Fault = nil
	if !inv.Entry.HasTree || inv.Paths[0] != filepath.Join(l.home, "a") || inv.WorktreeID != "" {
		t.Errorf("%+v", inv)
	}
	for i, point := range steps {
		if testing.Short() && i%3 != 0 {
			continue
		}
		l := newLab(t, "a/x")
		prepare(l)
		l.must(ensureRepositories(l.repo))
		before, failure := l.data(), errors.New("fault")
		l.repo.Opts.Fault = func(_ context.Context, at string) error {
			if at == point {
				return failure
			}
			return nil
		}
		if _, err := Start(t.Context(), l.repo, StartRequest{Paths: []string{"a"}}); !errors.Is(err, failure) {
			t.Fatalf("%s: %v", point, err)
		}
		ignore := func(path string) bool {
			return strings.HasSuffix(path, "/paths/git/info") || strings.Contains(path, "paths/states/logs") || strings.Contains(path, "paths/git/logs") || strings.Contains(path, "paths/git/refs") || strings.Contains(path, "paths/states/refs") ||
				strings.HasSuffix(path, "data/cache") || strings.HasSuffix(path, "paths/copies") || strings.Contains(path, "/worktrees")
		}
		if after := slices.DeleteFunc(l.data(), ignore); !slices.Equal(after, slices.DeleteFunc(slices.Clone(before), ignore)) {
			t.Errorf("%s leaves %q, there was %q", point, after, before)
		}
		l.repo.Opts.Fault = nil
		l.start("a")
	}
}

// Of what an agent leaves in an upper directory, only files and symbolic links are read; nothing leads out of it, and nothing of a git
// directory is part of the work.
func TestReadWorkOfHostileUpperDirectory(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a/keep", "a/.git/config", "a/sub/.git/config", "a/sub/x", "bare/HEAD", "secret/key")
	for _, dir := range []string{"a/bare/objects/pack", "a/bare/refs/heads"} {
		l.write(dir+"/f", "f")
	}
	l.write("a/bare/HEAD", "ref: refs/heads/main\n")
	inv := l.start("a")
	m := inv.Entry.Record.PathsFields
	upper := UpperDir(l.repo, inv.ID, filepath.Join(l.home, "a"))
	l.must(os.MkdirAll(upper, 0o755))
	in := func(name string) string { return filepath.Join(upper, name) }
	for _, dir := range []string{".git/hooks", "sub/.GIT/hooks", "evil/.git/hooks", "bare/hooks", "new.git/objects/pack", "new.git/refs/heads", "dir"} {
		l.must(os.MkdirAll(in(dir), 0o755))
	}
	for name, content := range map[string]string{
		".git/hooks/pre-commit": "evil", "sub/.GIT/hooks/pre-commit": "evil", "evil/.git/hooks/pre-commit": "evil", "evil/fine": "fine", "bare/hooks/pre-receive": "evil",
		"new.git/HEAD": "ref: refs/heads/main\n", "new.git/config": "[core]\n", "new.git/objects/pack/p": "p", "new.git/refs/heads/main": "x", "big": strings.Repeat("x", maxInMemory+1),
	} {
		l.must(os.WriteFile(in(name), []byte(content), 0o644))
	}
	l.must(os.Symlink(filepath.Join(l.home, "secret"), in("link")))
	l.must(os.Symlink("/etc/passwd", in("dir/passwd")))
	l.must(syscall.Mkfifo(in("pipe"), 0o644))
	l.must(syscall.Mkfifo(in("keep"), 0o644)) // in the place of a file
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	l.must(err)
	dir, err := os.Open(upper)
	l.must(err)
	l.must(unix.Bind(socket, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd())})) // the whole path is too long
	l.must(dir.Close())
	l.must(unix.Close(socket))
	w, err := ReadWork(t.Context(), l.repo, States(l.repo).Git, inv.ID, m)
	l.must(err)
	if got, want := w.Changed(), []string{"0/big", "0/dir/passwd", "0/evil/fine", "0/link"}; !slices.Equal(got, want) {
		t.Errorf("changed %q, want %q", got, want)
	}
	left := map[string]string{}
	for _, o := range w.LeftOut {
		left[o.Path] = o.Reason
	}
	want := map[string]string{
		"0/.git": LeftOutGit, "0/sub/.GIT": LeftOutGit, "0/evil/.git": LeftOutGit, "0/bare": LeftOutGit, "0/new.git": LeftOutGit,
		"0/pipe": LeftOutSpecial, "0/keep": LeftOutSpecial, "0/socket": LeftOutSpecial,
	}
	if !maps.Equal(left, want) {
		t.Errorf("left out %v, want %v", left, want)
	}
	if target, err := States(l.repo).Git.RunRead(t.Context(), git.RunOptions{}, "cat-file", "blob", w.Tree["0/link"].OID); err != nil || string(target) != filepath.Join(l.home, "secret") {
		t.Errorf("the link has %q, %v", target, err)
	}
}

func TestCommandsSeeOverlaysAndOriginalsStay(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a/one", "a/sub/two", "b/three")
	inv := l.start("a", filepath.Join(l.home, "b"))
	box, err := sandbox.Open(l.repo, inv.ID)
	l.must(err)
	res, err := box.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"sh", "-c", "pwd; cat one; echo more >>one; rm -r sub; mkdir sub; echo new >sub/new; echo x >" + l.home + "/b/x; ls " + l.home + "/data"}})
	l.must(err)
	if !strings.HasPrefix(res.Stdout, filepath.Join(l.home, "a")+"\none\n") || strings.Contains(res.Stdout, "states") {
		t.Errorf("%+v", res)
	}
	res, err = box.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"pwd"}, Cwd: filepath.Join(l.home, "b")})
	if l.must(err); res.Stdout != filepath.Join(l.home, "b")+"\n" {
		t.Errorf("%+v", res)
	}
	if _, err := box.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"pwd"}, Cwd: l.home}); err == nil {
		t.Error("a command ran outside of the directories")
	}
	if text, err := os.ReadFile(filepath.Join(l.home, "a/one")); err != nil || string(text) != "one\n" {
		t.Errorf("the original has %q, %v", text, err)
	}
	d, err := Diff(t.Context(), l.repo, diff.Request{Invocation: inv.ID})
	l.must(err)
	var names []string
	for _, f := range slices.Concat(d.Added, d.Removed, d.Changed) {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	if want := []string{l.home + "/b/x", "a/one", "a/sub/new", "a/sub/two"}; !slices.Equal(names, want) { // a slash sorts before letters
		t.Errorf("diff names %q, want %q", names, want)
	}
	d, err = Diff(t.Context(), l.repo, diff.Request{Invocation: inv.ID, Paths: []string{"a/sub"}})
	l.must(err)
	if len(d.Added) != 1 || len(d.Removed) != 1 || len(d.Changed) != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := Diff(t.Context(), l.repo, diff.Request{Invocation: inv.ID, Paths: []string{"c"}}); !fault.Is[*fault.InvalidError](err) {
		t.Errorf("%v", err)
	}
}

func TestSweepDeletesStatesOfNoSandbox(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a/x")
	inv := l.start("a")
	states := States(l.repo).Git
	gone := "20260128120500-b7c9"
	l.must(states.CreateRef(t.Context(), changeset.BaseRef(gone), inv.Entry.Record.PathsBase, "test"))
	l.must(states.CreateRef(t.Context(), core.SnapshotRef(gone, 1), inv.Entry.Record.PathsBase, "test"))
	l.must(Sweep(t.Context(), l.repo))
	out, err := states.RunRead(t.Context(), git.RunOptions{}, "for-each-ref", "--format=%(refname)")
	if l.must(err); strings.TrimSpace(string(out)) != changeset.BaseRef(inv.ID) {
		t.Errorf("refs: %s", out)
	}
}

// cat-file answers for an object that git does not have: the file must not become empty.
func TestWriteBlobRefusesMissingBlob(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a/x")
	inv := l.start("a")
	states := States(l.repo).Git
	cat, err := states.OpenCatFile(t.Context())
	l.must(err)
	t.Cleanup(cat.Close)
	for _, oid := range []string{strings.Repeat("1", 40), inv.Entry.Record.PathsBase} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		l.must(err)
		if err := WriteBlob(t.Context(), states, cat, oid, f); !fault.Is[*object.IncompleteError](err) {
			t.Errorf("%s: %v", oid, err)
		}
		l.must(f.Close())
	}
}
