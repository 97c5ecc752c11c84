package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lab is a repository with the tool installed beside it, for tests that a script cannot express.
type lab struct {
	t    *testing.T
	dir  string // parent of repo, data and home
	repo string
	data string
	bin  string
	env  []string
}

// newLab creates a repository with a few files and one commit.
func newLab(t *testing.T) *lab {
	t.Helper()
	return newLabIn(t, t.TempDir())
}

func newLabIn(t *testing.T, dir string) *lab {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, repo: filepath.Join(dir, "repo"), data: filepath.Join(dir, "data"), bin: binDir(t)}
	l.env = append(isolatedEnv(dir), "PATH="+l.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
	if c := os.Getenv("GOCOVERDIR"); c != "" {
		l.env = append(l.env, "GOCOVERDIR="+c)
	}
	t.Cleanup(func() { makeAccessible(dir) }) // so that an ordinary user can remove it
	for name, content := range map[string]string{"readme": "hello\n", "sub/one": "1\n", "sub/deep/two": "2\n", "run.sh": "#!/bin/sh\n"} {
		l.write(filepath.Join(l.repo, name), content)
	}
	if err := makeGitTemplate(dir); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(dir, "home", ".gitconfig"), withoutDetach)
	l.git("init", "-q", "-b", "main", ".")
	l.git("add", ".")
	l.git("commit", "-q", "-m", "first")
	return l
}

// withT returns the lab for a subtest.
func (l *lab) withT(t *testing.T) *lab {
	with := *l
	with.t = t
	return &with
}

// binDir returns a directory with symlinks to this test binary, named after the commands of TestMain.
func binDir(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"git-agency", "killat"} {
		if err := os.Symlink(exe, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// outcome is the exit code and output of a command.
type outcome struct {
	code   int
	stdout string
	stderr string
}

func (o outcome) line() string { return strings.TrimSuffix(o.stdout, "\n") }

// try runs a command in the repository and returns its outcome, also of a failure.
func (l *lab) try(extraEnv []string, argv ...string) outcome {
	l.t.Helper()
	name := argv[0]
	if path := filepath.Join(l.bin, name); exists(path) {
		name = path
	}
	cmd := exec.CommandContext(l.t.Context(), name, argv[1:]...)
	cmd.Dir, cmd.Env = l.repo, append(append([]string{}, l.env...), extraEnv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatalf("%q: %v", argv, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// agency runs git-agency, which must succeed, and returns the line it printed.
func (l *lab) agency(args ...string) string {
	l.t.Helper()
	return l.must(append([]string{"git-agency"}, args...)...)
}

func (l *lab) git(args ...string) string {
	l.t.Helper()
	return l.must(append([]string{"git"}, args...)...)
}

func (l *lab) must(argv ...string) string {
	l.t.Helper()
	o := l.try(nil, argv...)
	if o.code != 0 {
		l.t.Fatalf("%q ended with %d:\n%s%s", argv, o.code, o.stdout, o.stderr)
	}
	return o.line()
}

// dump lists all files of the lab; see dumpFiles.
func (l *lab) dump() string {
	l.t.Helper()
	text, err := dumpFiles(l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// makeAccessible gives the owner access to every directory of a tree.
func makeAccessible(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			if err := os.Chmod(path, 0o700); err != nil {
				return fs.SkipDir // the later removal reports the error
			}
		}
		return nil
	})
}

func (l *lab) write(path, content string) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) read(path string) string {
	l.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return string(data)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// waitForFile waits until a file exists. It returns false after the time limit of waitUntil.
func waitForFile(path string) bool { return waitUntil(func() bool { return exists(path) }) }

// waitUntil polls a condition for at most two minutes and reports whether it held. It polls less and less often,
// because some conditions scan every process of the machine.
func waitUntil(there func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(pause) {
		if there() {
			return true
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
	return false
}

// dumpDiff returns the lines by which two dumps differ, marked + and -.
func dumpDiff(before, after string) string {
	var b strings.Builder
	have := map[string]bool{}
	for line := range strings.Lines(before) {
		have[line] = true
	}
	for line := range strings.Lines(after) {
		if !have[line] {
			_, _ = io.WriteString(&b, "+ "+line)
		}
		delete(have, line)
	}
	for line := range have {
		_, _ = io.WriteString(&b, "- "+line)
	}
	return b.String()
}
