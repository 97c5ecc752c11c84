// Package gittest creates git repositories for tests, in an environment without the configuration of the machine. It
// runs plain git and must not import any package of this module, so that the tests of every package can use it.
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

// Parents returns the object names of a commit's parents.
func (l *Fixture) Parents(commit string) []string {
	l.T.Helper()
	return strings.Fields(l.Git("rev-list", "--parents", "-n1", commit))[1:]
}

// Timeout limits how long a test waits for an event that must happen. Only a failing test reaches it.
const Timeout = 2 * time.Minute

// Fixture is a repository with an environment of its own: without the configuration of the machine, with a fixed
// identity and with fixed commit dates.
type Fixture struct {
	T            *testing.T
	Root         string   // main worktree, without symlinks in its path
	GlobalConfig string   // path of the user's configuration file
	Env          []string // environment of every git that the fixture runs
}

// New creates a repository with one commit on main: a.txt, dir/b.txt, run.sh (executable) and link (a symlink to
// a.txt).
func New(t *testing.T) *Fixture {
	t.Helper()
	l := NewEmpty(t)
	l.Git("init", "-q", "-b", "main", WithTemplate(t), ".")
	l.Write("a.txt", "a\n")
	l.Write("dir/b.txt", "b\n")
	l.Write("run.sh", "#!/bin/sh\n")
	l.Must(os.Chmod(filepath.Join(l.Root, "run.sh"), 0o755))
	l.Must(os.Symlink("a.txt", filepath.Join(l.Root, "link")))
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "first")
	return l
}

// NewEmpty creates the environment and an empty Root directory, without a repository.
func NewEmpty(t *testing.T) *Fixture {
	t.Helper()
	root := TempDir(t)
	l := &Fixture{T: t, Root: filepath.Join(root, "repo"), GlobalConfig: filepath.Join(root, "gitconfig")}
	l.Must(os.Mkdir(l.Root, 0o755))
	l.Must(os.WriteFile(l.GlobalConfig, []byte("[user]\n\tname = Somebody\n\temail = somebody@example.com\n[maintenance]\n\tauto = false\n"), 0o644))
	l.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root,
		"GIT_CONFIG_GLOBAL=" + l.GlobalConfig, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_DATE=2026-01-28T12:00:00Z", "GIT_COMMITTER_DATE=2026-01-28T12:00:00Z",
	}
	return l
}

// WithTemplate makes a template for new repositories and returns the flag with which git init uses it. It has no sample
// hooks: to copy those of git's own template takes almost half of the time of git init.
func WithTemplate(tb testing.TB) string {
	tb.Helper()
	template := tb.TempDir()
	for _, name := range []string{"hooks", "info"} {
		if err := os.MkdirAll(filepath.Join(template, name), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(template, "info", "exclude"), nil, 0o644); err != nil {
		tb.Fatal(err)
	}
	return "--template=" + template
}

// TempDir returns t.TempDir with the symlinks in its path resolved.
func TempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Must fails the test on an error.
func (l *Fixture) Must(err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

// Git runs git in the main worktree and returns its output as GitIn does.
func (l *Fixture) Git(args ...string) string { l.T.Helper(); return l.GitIn(l.Root, args...) }

// GitIn runs git in dir and returns its standard output without the last newline. A git that fails, fails the test.
func (l *Fixture) GitIn(dir string, args ...string) string {
	l.T.Helper()
	out, err := l.TryGit(dir, args...)
	if err != nil {
		l.T.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSuffix(out, "\n")
}

// TryGit runs git in dir and returns its standard output. The error of a git that fails quotes its standard error.
func (l *Fixture) TryGit(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.T.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, &stderr)
	}
	return stdout.String(), nil
}

// Write writes a file of the main worktree as WriteIn does.
func (l *Fixture) Write(name, content string) { l.T.Helper(); l.WriteIn(l.Root, name, content) }

// WriteIn writes a file below dir and creates the directories that it needs.
func (l *Fixture) WriteIn(dir, name, content string) {
	l.T.Helper()
	path := filepath.Join(dir, name)
	l.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.Must(os.WriteFile(path, []byte(content), 0o644))
}

// Commit commits every change in the main worktree, untracked files included, and returns the commit.
func (l *Fixture) Commit(message string) string {
	l.T.Helper()
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", message)
	return l.Git("rev-parse", "HEAD")
}

// ConfigureGlobal adds a value to the user's configuration file.
func (l *Fixture) ConfigureGlobal(key, value string) {
	l.T.Helper()
	l.Git("config", "--file", l.GlobalConfig, "--add", key, value)
}

// SandboxName is a valid sandbox id, used as the name of a worktree.
const SandboxName = "20260128120500-b7c9"

// Files maps every path of a commit or tree to its mode and content; the path of a submodule to its mode and commit.
func (l *Fixture) Files(treeish string) map[string]string {
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

// MakeFIFO replaces path, whatever it is, with a named pipe. At the end of the test it is opened for writing, which
// releases a reader that still waits in open.
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

// Within fails the test if f, which what describes, does not return within Timeout.
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

// CommitDetached checks out a commit with a detached HEAD and commits files, by path, on top of it. A file with empty
// content is removed.
func (l *Fixture) CommitDetached(on string, files map[string]string) string {
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

// AllObjects returns the names of all objects in the repository, reachable or not.
func (l *Fixture) AllObjects() map[string]bool {
	l.T.Helper()
	found := map[string]bool{}
	for oid := range strings.FieldsSeq(l.Git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")) {
		found[oid] = true
	}
	return found
}

// TwoCommits adds a commit and returns the previous HEAD and the new commit.
func (l *Fixture) TwoCommits() (older, newer string) {
	l.T.Helper()
	older = l.Git("rev-parse", "HEAD")
	l.Write("second", "2\n")
	return older, l.Commit("second")
}

// Reflog returns the content of a ref's reflog file; empty if there is none.
func (l *Fixture) Reflog(ref string) string {
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/logs", ref))
	if err != nil {
		return ""
	}
	return string(data)
}

// RawCommit writes a commit object with exactly this content, even if git considers it malformed.
func (l *Fixture) RawCommit(content string) string {
	l.T.Helper()
	dir := l.T.TempDir()
	l.WriteIn(dir, "commit", content)
	return l.Git("hash-object", "--literally", "-t", "commit", "-w", filepath.Join(dir, "commit"))
}

// Shell runs a shell command line in the main worktree.
func (l *Fixture) Shell(line string) { l.T.Helper(); l.ShellIn(l.Root, line) }

// ShellIn runs a shell command line in a directory and returns what it prints.
func (l *Fixture) ShellIn(dir, line string) string {
	l.T.Helper()
	cmd := exec.CommandContext(l.T.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, l.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.T.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// MakeTree writes a tree object from lines in the format of ls-tree. The objects they name may be missing.
func (l *Fixture) MakeTree(lines ...string) string {
	l.T.Helper()
	l.WriteIn(l.Root, ".git/lines", strings.Join(lines, "\n")+"\n")
	l.Shell("git mktree --missing <.git/lines >.git/tree")
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/tree"))
	l.Must(err)
	return strings.TrimSpace(string(data))
}

// MakeBlob writes an unreachable blob.
func (l *Fixture) MakeBlob(content string) string {
	l.T.Helper()
	l.WriteIn(l.Root, ".git/blob", content)
	return l.Git("hash-object", "-w", ".git/blob")
}

// LoosePath returns the path of a loose object.
func (l *Fixture) LoosePath(oid string) string {
	return filepath.Join(l.Root, ".git", "objects", oid[:2], oid[2:])
}

// RewriteFile replaces a file, which may be read-only, by one with the changed content. restore writes the old
// content back.
func (l *Fixture) RewriteFile(path string, change func([]byte) []byte) (restore func()) {
	l.T.Helper()
	before, err := os.ReadFile(path)
	l.Must(err)
	l.Must(os.Remove(path))
	l.Must(os.WriteFile(path, change(bytes.Clone(before)), 0o600))
	return func() { l.T.Helper(); l.Must(os.WriteFile(path, before, 0o600)) }
}
