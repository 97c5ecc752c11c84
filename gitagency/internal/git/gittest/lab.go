// Package gittest makes git repositories for tests, in an environment without the configuration of the machine. It runs
// plain git and imports nothing of this module, so that the tests of every package can use it.
package gittest

import (
	"bytes"
	"fmt"
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

func (l *Lab) Parents(commit string) []string {
	l.T.Helper()
	return strings.Fields(l.Git("rev-list", "--parents", "-n1", commit))[1:]
}

// patience is how long a test waits for what must happen; it is never reached unless the test fails.
const Timeout = 10 * time.Second

// lab is a repository in an environment of its own: no configuration of the machine, no identity of
// the person who runs the tests, and dates that never change.
type Lab struct {
	T            *testing.T
	Root         string // the main worktree, canonical
	GlobalConfig string // the user's configuration
	Env          []string
}

// New makes a repository with one commit on main: a.txt, dir/b.txt, run.sh (executable) and
// link (to a.txt).
func New(t *testing.T) *Lab {
	t.Helper()
	l := NewEmpty(t)
	l.Git("init", "-q", "-b", "main", ".")
	l.Write("a.txt", "a\n")
	l.Write("dir/b.txt", "b\n")
	l.Write("run.sh", "#!/bin/sh\n")
	l.Must(os.Chmod(filepath.Join(l.Root, "run.sh"), 0o755))
	l.Must(os.Symlink("a.txt", filepath.Join(l.Root, "link")))
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "first")
	return l
}

// NewEmpty is the environment without a repository.
func NewEmpty(t *testing.T) *Lab {
	t.Helper()
	root := TempDir(t)
	l := &Lab{T: t, Root: filepath.Join(root, "repo"), GlobalConfig: filepath.Join(root, "gitconfig")}
	l.Must(os.Mkdir(l.Root, 0o755))
	l.Must(os.WriteFile(l.GlobalConfig, []byte("[user]\n\tname = Somebody\n\temail = somebody@example.com\n"), 0o644))
	l.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root,
		"GIT_CONFIG_GLOBAL=" + l.GlobalConfig, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_DATE=2026-01-28T12:00:00Z", "GIT_COMMITTER_DATE=2026-01-28T12:00:00Z",
	}
	return l
}

// TempDir is t.TempDir without symlinks on the way.
func TempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (l *Lab) Must(err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

// Git runs a git of the test's own in the main worktree.
func (l *Lab) Git(args ...string) string { l.T.Helper(); return l.GitIn(l.Root, args...) }

// GitIn is git in another directory. What it prints comes back without the last newline.
func (l *Lab) GitIn(dir string, args ...string) string {
	l.T.Helper()
	out, err := l.TryGit(dir, args...)
	if err != nil {
		l.T.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSuffix(out, "\n")
}

func (l *Lab) TryGit(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.T.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, &stderr)
	}
	return stdout.String(), nil
}

// Write puts a file into the main worktree; put into any directory.
func (l *Lab) Write(name, content string) { l.T.Helper(); l.WriteIn(l.Root, name, content) }

func (l *Lab) WriteIn(dir, name, content string) {
	l.T.Helper()
	path := filepath.Join(dir, name)
	l.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.Must(os.WriteFile(path, []byte(content), 0o644))
}

func (l *Lab) Commit(message string) string {
	l.T.Helper()
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", message)
	return l.Git("rev-parse", "HEAD")
}

// ConfigureGlobal adds to what the user configured.
func (l *Lab) ConfigureGlobal(key, value string) {
	l.T.Helper()
	l.Git("config", "--file", l.GlobalConfig, "--add", key, value)
}

const SandboxName = "20260128120500-b7c9"

// Files are the paths a commit or tree holds, each with its mode and content.
func (l *Lab) Files(treeish string) map[string]string {
	l.T.Helper()
	found := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(l.Git("ls-tree", "-r", "-z", "--full-tree", treeish), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		f := strings.Fields(meta)
		content := f[2]
		if f[1] == "blob" {
			content, _ = l.TryGit(l.Root, "cat-file", "blob", f[2])
		}
		found[path] = f[0] + " " + content
	}
	return found
}

// MakeFIFO puts a pipe where something may have been. Whoever reads it is let go when the test ends.
func MakeFIFO(t *testing.T, path string) {
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

// Within fails the test when f does not return.
func Within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timeout := time.NewTimer(Timeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		t.Fatalf("%s did not return within %s", what, Timeout)
	}
}

// SideCommit makes a commit on top of another, with other files; one without content goes.
func (l *Lab) SideCommit(on string, files map[string]string) string {
	l.T.Helper()
	l.Git("checkout", "-q", "--detach", on)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == "" {
			l.Git("rm", "-q", "-r", name)
			continue
		}
		l.Write(name, files[name])
	}
	l.Git("add", "-A")
	l.Git("commit", "-q", "--allow-empty", "-m", "side "+strings.Join(slices.Sorted(maps.Keys(files)), " "))
	return l.Git("rev-parse", "HEAD")
}

// AllObjects are all that there are in a repository.
func (l *Lab) AllObjects() map[string]bool {
	l.T.Helper()
	found := map[string]bool{}
	for oid := range strings.FieldsSeq(l.Git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")) {
		found[oid] = true
	}
	return found
}

// TwoCommits makes a second commit and returns both, the older first.
func (l *Lab) TwoCommits() (older, newer string) {
	l.T.Helper()
	older = l.Git("rev-parse", "HEAD")
	l.Write("second", "2\n")
	return older, l.Commit("second")
}

func (l *Lab) Reflog(ref string) string {
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/logs", ref))
	if err != nil {
		return ""
	}
	return string(data)
}

// RawCommit is a commit as it is written.
func (l *Lab) RawCommit(content string) string {
	l.T.Helper()
	dir := l.T.TempDir()
	l.WriteIn(dir, "commit", content)
	return l.Git("hash-object", "--literally", "-t", "commit", "-w", filepath.Join(dir, "commit"))
}

// Shell runs a line in the main worktree.
func (l *Lab) Shell(line string) {
	l.T.Helper()
	cmd := exec.CommandContext(l.T.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = l.Root, l.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		l.T.Fatalf("%s: %v: %s", line, err, out)
	}
}

// MakeTree makes a tree of lines as ls-tree writes them, of which not all has to be there.
func (l *Lab) MakeTree(lines ...string) string {
	l.T.Helper()
	l.WriteIn(l.Root, ".git/lines", strings.Join(lines, "\n")+"\n")
	l.Shell("git mktree --missing <.git/lines >.git/tree")
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/tree"))
	l.Must(err)
	return strings.TrimSpace(string(data))
}

// MakeBlob makes a file that nothing leads to.
func (l *Lab) MakeBlob(content string) string {
	l.T.Helper()
	l.WriteIn(l.Root, ".git/blob", content)
	return l.Git("hash-object", "-w", ".git/blob")
}

func (l *Lab) LoosePath(oid string) string {
	return filepath.Join(l.Root, ".git", "objects", oid[:2], oid[2:])
}

// RewriteFile changes a file that git made read-only.
func (l *Lab) RewriteFile(path string, change func([]byte) []byte) (restore func()) {
	l.T.Helper()
	before, err := os.ReadFile(path)
	l.Must(err)
	l.Must(os.Remove(path))
	l.Must(os.WriteFile(path, change(bytes.Clone(before)), 0o600))
	return func() { l.T.Helper(); l.Must(os.WriteFile(path, before, 0o600)) }
}
