package git

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen; it is never reached unless the test fails.
const patience = 10 * time.Second

// lab is a repository in an environment of its own: no configuration of the machine, no identity of
// the person who runs the tests, and dates that never change.
type lab struct {
	t      *testing.T
	dir    string // the main worktree, canonical
	global string // the user's configuration
	env    []string
}

// newLab makes a repository with one commit on main: a.txt, dir/b.txt, run.sh (executable) and
// link (to a.txt).
func newLab(t *testing.T) *lab {
	t.Helper()
	l := emptyLab(t)
	l.git("init", "-q", "-b", "main", ".")
	l.write("a.txt", "a\n")
	l.write("dir/b.txt", "b\n")
	l.write("run.sh", "#!/bin/sh\n")
	l.must(os.Chmod(filepath.Join(l.dir, "run.sh"), 0o755))
	l.must(os.Symlink("a.txt", filepath.Join(l.dir, "link")))
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "first")
	return l
}

// emptyLab is the environment without a repository.
func emptyLab(t *testing.T) *lab {
	t.Helper()
	root := tempDir(t)
	l := &lab{t: t, dir: filepath.Join(root, "repo"), global: filepath.Join(root, "gitconfig")}
	l.must(os.Mkdir(l.dir, 0o755))
	l.must(os.WriteFile(l.global, []byte("[user]\n\tname = Somebody\n\temail = somebody@example.com\n"), 0o644))
	l.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root,
		"GIT_CONFIG_GLOBAL=" + l.global, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_DATE=2026-01-28T12:00:00Z", "GIT_COMMITTER_DATE=2026-01-28T12:00:00Z",
	}
	return l
}

// tempDir is t.TempDir without symlinks on the way.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// git runs a git of the test's own in the main worktree.
func (l *lab) git(args ...string) string { l.t.Helper(); return l.in(l.dir, args...) }

// in is git in another directory. What it prints comes back without the last newline.
func (l *lab) in(dir string, args ...string) string {
	l.t.Helper()
	out, err := l.try(dir, args...)
	if err != nil {
		l.t.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSuffix(out, "\n")
}

func (l *lab) try(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, &stderr)
	}
	return stdout.String(), nil
}

// write puts a file into the main worktree; put into any directory.
func (l *lab) write(name, content string) { l.t.Helper(); l.put(l.dir, name, content) }

func (l *lab) put(dir, name, content string) {
	l.t.Helper()
	path := filepath.Join(dir, name)
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.must(os.WriteFile(path, []byte(content), 0o644))
}

func (l *lab) commit(message string) string {
	l.t.Helper()
	l.git("add", "-A")
	l.git("commit", "-q", "-m", message)
	return l.git("rev-parse", "HEAD")
}

// configure adds to what the user configured.
func (l *lab) configure(key, value string) {
	l.t.Helper()
	l.git("config", "--file", l.global, "--add", key, value)
}

func (l *lab) open() *Repo { l.t.Helper(); return l.openIn(l.dir) }

func (l *lab) openIn(dir string, env ...string) *Repo {
	l.t.Helper()
	repo, err := Open(l.t.Context(), dir, slices.Concat(l.env, env))
	l.must(err)
	return repo
}

const sandboxName = "20260128120500-b7c9"

// register makes a branch and a registered, still empty tree.
func (l *lab) register(repo *Repo, name, tree string) Registration {
	l.t.Helper()
	w := Registration{Name: name, Tree: tree, Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.t.TempDir(), name)}
	l.must(repo.CreateRef(l.t.Context(), w.Branch, l.git("rev-parse", "HEAD"), "test"))
	l.must(os.MkdirAll(w.Tree, 0o755))
	l.must(repo.AddWorktree(l.t.Context(), w))
	return w
}

// sandbox makes a whole linked worktree as the production code does.
func (l *lab) sandbox(repo *Repo) Registration {
	l.t.Helper()
	w := l.register(repo, sandboxName, filepath.Join(tempDir(l.t), "tree"))
	l.must(repo.CheckoutWorktree(l.t.Context(), w, l.git("rev-parse", "HEAD")))
	return w
}

// files are the paths a commit or tree holds, each with its mode and content.
func (l *lab) files(treeish string) map[string]string {
	l.t.Helper()
	found := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(l.git("ls-tree", "-r", "-z", "--full-tree", treeish), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		f := strings.Fields(meta)
		content := f[2]
		if f[1] == "blob" {
			content, _ = l.try(l.dir, "cat-file", "blob", f[2])
		}
		found[path] = f[0] + " " + content
	}
	return found
}

// states is everything below the paths: names, kinds, modes and contents.
func states(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			what := fi.Mode().String()
			switch {
			case fi.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				what += " " + string(data)
			case fi.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				what += " -> " + target
			}
			found[path] = what
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// requireSame compares two maps and names only what differs.
func requireSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(got))
	for k := range want {
		if _, have := got[k]; !have {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		g, haveG := got[k]
		w, haveW := want[k]
		switch {
		case !haveG:
			t.Errorf("%s: %q is missing, want %q", what, k, w)
		case !haveW:
			t.Errorf("%s: %q is there and should not be: %q", what, k, g)
		case g != w:
			t.Errorf("%s: %q is %q, want %q", what, k, g, w)
		}
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// fifo puts a pipe where something may have been. Whoever reads it is let go when the test ends.
func fifo(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})
}

// within fails the test when f does not return.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		t.Fatalf("%s did not return within %s", what, patience)
	}
}

// unprivileged reports whether the test runs as somebody whom permissions bind. As root it does not;
// then the same test runs again as nobody, in another process and a directory of nobody's own, and
// fails here if it fails there.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The program lies where nobody may not go; an open file is a way past that, and unlike a copy it
	// is never busy.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as nobody the test did not run:\n%s", out)
	}
	return false
}

// conflict leaves a worktree in the middle of a merge in which a.txt is in conflict.
func (l *lab) conflict(w Registration) {
	l.t.Helper()
	l.put(w.Tree, "a.txt", "ours\n")
	l.in(w.Tree, "commit", "-q", "-a", "-m", "ours")
	l.in(w.Tree, "checkout", "-q", "--detach", "HEAD~1")
	l.put(w.Tree, "a.txt", "theirs\n")
	l.in(w.Tree, "commit", "-q", "-a", "-m", "theirs")
	if _, err := l.try(w.Tree, "merge", w.Branch); err == nil {
		l.t.Fatal("there was no conflict")
	}
}
