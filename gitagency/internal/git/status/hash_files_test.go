package status

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// diskTree returns the tree of the files of a sandbox worktree.
func diskTree(l *gittest.Fixture, m *git.Mirror, w worktree.Registration) string {
	l.T.Helper()
	tree, _, err := DiskTree(l.T.Context(), m, repotest.SpecOf(l, w))
	l.Must(err)
	return tree
}

// DiskTree must return the tree that "git add --all" would make, whichever way a file is hashed.
func TestDiskTreeIsThatOfGitAdd(t *testing.T) {
	t.Parallel()
	type arrange func(l *gittest.Fixture, tree string)
	for name, c := range map[string]struct {
		config  map[string]string
		arrange arrange
	}{
		"without attributes": {arrange: func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "crlf", "a\r\nb\r\n") }},
		"core.autocrlf":      {config: map[string]string{"core.autocrlf": "input"}, arrange: func(l *gittest.Fixture, tree string) { l.WriteIn(tree, "crlf", "a\r\nb\r\n") }},
		"attributes of the worktree": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitattributes", "*.txt text\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n")
			l.WriteIn(tree, "crlf.txt", "a\r\nb\r\n")
			l.WriteIn(tree, "x.id", "$Id: 0123 $\n")
			l.WriteIn(tree, "x.u16", "\xff\xfea\x00\n\x00")
			l.WriteIn(tree, "plain", "a\r\n")
		}},
		"attributes in a subdirectory": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "sub/.gitattributes", "* text\n")
			l.WriteIn(tree, "sub/deep/crlf", "a\r\n")
			l.WriteIn(tree, "crlf", "a\r\n")
		}},
		"attributes that are a symlink": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "rules", "* text\n")
			l.WriteIn(tree, "sub/crlf", "a\r\n")
			l.Must(os.Symlink("../rules", filepath.Join(tree, "sub/.gitattributes")))
		}},
		"line endings of the index": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "mixed", "a\r\nb\r\n")
			l.GitIn(tree, "add", "mixed")
			l.WriteIn(tree, ".gitattributes", "* text=auto\n")
			l.WriteIn(tree, "mixed", "a\r\nb\r\nc\r\n")
		}},
		"no executable bits": {config: map[string]string{"core.fileMode": "false"}, arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "new", "n\n")
			l.Must(os.Chmod(filepath.Join(tree, "new"), 0o755))
			l.WriteIn(tree, "run.sh", "changed\n")
			l.Must(os.Chmod(filepath.Join(tree, "run.sh"), 0o644))
		}},
		"symlinks, modes and odd names": {arrange: func(l *gittest.Fixture, tree string) {
			l.Must(os.Symlink("/etc/passwd", filepath.Join(tree, "out")))
			l.WriteIn(tree, "new/run", "r\n")
			l.Must(os.Chmod(filepath.Join(tree, "new/run"), 0o755))
			l.WriteIn(tree, "new/:(top)", "c\n")
			l.WriteIn(tree, "new/a\nb\\ \xff", "c\n")
			l.WriteIn(tree, "new/empty", "")
		}},
		"ignore rules at every level": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitignore", "*.o\n/build/\n!keep.o\nlogs/**/debug\n")
			l.WriteIn(tree, "new/.gitignore", "!x.o\n/only\n")
			for _, name := range []string{"x.o", "keep.o", "build/out", "new/build/out", "new/x.o", "new/only", "new/deep/only", "logs/a/b/debug", "logs/a/info", "deep/er/x.o", "deep/er/file"} {
				l.WriteIn(tree, name, name+"\n")
			}
		}},
		"more than fits into memory": {arrange: func(l *gittest.Fixture, tree string) {
			for i := range maxMemoryBytes>>20 + 1 {
				l.WriteIn(tree, fmt.Sprintf("many/%d/%d", i%7, i), strings.Repeat(fmt.Sprintf("%015d\n", i), 1<<16))
			}
		}},
		"a pack of files": {arrange: func(l *gittest.Fixture, tree string) {
			for i := range 2 * git.MaxLooseObjects {
				l.WriteIn(tree, fmt.Sprintf("some/%d", i), fmt.Sprintln(i))
			}
		}},
		"a large file": {arrange: func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "large", strings.Repeat("0123456789abcde\n", maxMemoryBytes/16+1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			l.Write("run.sh", "r\n")
			l.Must(os.Chmod(filepath.Join(l.Root, "run.sh"), 0o755))
			l.Commit("executable")
			for key, value := range c.config {
				l.Git("config", key, value)
			}
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			c.arrange(l, w.Tree)
			got := diskTree(l, repotest.NewMirror(l), w)
			l.GitIn(w.Tree, "add", "--all")
			if want := l.GitIn(w.Tree, "write-tree"); got != want {
				out, _ := l.TryGit(l.Root, "diff-tree", "-r", want, got)
				t.Errorf("tree %s; git add makes %s\n%s", got, want, out)
			}
		})
	}
}

// A capture must never start git with the worktree of an agent as its directory or work tree.
func TestCaptureStartsNoGitInWorktree(t *testing.T) {
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".gitignore", "*.o\n")
	l.WriteIn(w.Tree, ".gitattributes", "* text\n")
	l.WriteIn(w.Tree, "a.txt", "a\r\n")
	l.WriteIn(w.Tree, "new/file", "n\r\n")
	l.WriteIn(w.Tree, "new/x.o", "o\n")
	// The git on PATH has to write a log, so that it gets no walls.
	bin, logFile := gittest.TempDir(t), filepath.Join(gittest.TempDir(t), "log")
	script := fmt.Sprintf("#!/bin/sh\n{ pwd -P; printf '%%s\\n' \"$@\"; } >>'%s' || exit\nPATH=${PATH#*:} exec git \"$@\"\n", logFile)
	l.Must(os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	repo.Env = append(repo.Env, "PATH="+os.Getenv("PATH"))
	for _, inUse := range []bool{true, false} {
		s := repotest.SpecOf(l, w)
		s.InUse = inUse
		for until := time.Now().Add(gittest.Timeout); ; {
			g, err := CollectWorktree(t.Context(), repo, s, l.Git("rev-parse", "main"))
			err = errors.Join(err, g.CheckStable(t.Context()), g.Close())
			if errors.As(err, new(*StillChangingError)) && time.Now().Before(until) {
				continue // a directory is as young as the scan
			}
			l.Must(err)
			break
		}
	}
	said, err := os.ReadFile(logFile)
	l.Must(err)
	if !strings.Contains(string(said), "update-index") {
		t.Errorf("git converted nothing: %s", said)
	}
	if strings.Contains(string(said), w.Tree) {
		t.Errorf("git was started on the worktree: %s", said)
	}
}

func TestCaptureStopsAtReadLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits  readlimit.Limits
		arrange func(l *gittest.Fixture, tree string)
		want    string
	}{
		"untracked files": {readlimit.Limits{Inflated: 1000}, func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "one", strings.Repeat("1", 600))
			l.WriteIn(tree, "two", strings.Repeat("2", 600))
		}, readlimit.Inflated},
		"ignore rules": {readlimit.Limits{Output: 1000}, func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, ".gitignore", strings.Repeat("# rule\n", 1000))
			l.WriteIn(tree, "one", "1")
		}, readlimit.Output},
		"attribute rules": {readlimit.Limits{Output: 1000}, func(l *gittest.Fixture, tree string) {
			l.WriteIn(tree, "sub/.gitattributes", strings.Repeat("# rule\n", 1000))
			l.WriteIn(tree, "sub/one", "1")
		}, readlimit.Output},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			c.arrange(l, w.Tree)
			m := repotest.NewMirror(l)
			m.Repo.ReadLimits = c.limits
			_, _, err := DiskTree(t.Context(), m, repotest.SpecOf(l, w))
			var exceeded *readlimit.ExceededError
			if !errors.As(err, &exceeded) || exceeded.Limit != c.want {
				t.Errorf("got %v; want the limit %s", err, c.want)
			}
		})
	}
}

// Ignore rules that take git exponential time must not stall a capture.
func TestCaptureWithNestedWildcards(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".gitignore", strings.Repeat("/**/a", 25)+"/\n"+strings.Repeat("*a", 25)+"b\n")
	l.WriteIn(w.Tree, strings.Repeat("a/", 60)+"file", "f\n")
	l.WriteIn(w.Tree, "dir/"+strings.Repeat("a", 200), "f\n")
	gittest.Within(t, "the capture", func() { diskTree(l, repotest.NewMirror(l), w) })
}

// Attribute rules that take git exponential time must end in an error that names the limit, and later captures of the
// same files must fail at once.
func TestCaptureRemembersExceededLimit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, ".gitattributes", strings.Repeat("/**/a", 12)+"/c text\n")
	l.GitIn(w.Tree, "add", ".gitattributes")
	l.GitIn(w.Tree, "commit", "-q", "-m", "rules") // else they would be refused
	l.WriteIn(w.Tree, strings.Repeat("a/", 60)+"file", "f\n")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	s := repotest.SpecOf(l, w)
	m := repotest.NewMirror(l)
	m.Repo.ReadLimits = readlimit.Default()
	m.Repo.ReadLimits.Time = time.Second
	var first, second *readlimit.ExceededError
	if _, _, err := DiskTree(t.Context(), m, s); !errors.As(err, &first) || first.Limit != readlimit.Time {
		t.Fatalf("got %v", err)
	}
	l.RewriteFile(filepath.Join(repo.AdminDir(w.Name), verdictFile), func(data []byte) []byte {
		return bytes.Replace(data, []byte(first.Value), []byte("remembered"), 1)
	})
	if _, _, err := DiskTree(t.Context(), m, s); !errors.As(err, &second) || second.Value != "remembered" {
		t.Fatalf("got %v", err)
	}
	l.WriteIn(w.Tree, ".gitattributes", "* text\n") // another state
	if _, _, err := DiskTree(t.Context(), repotest.NewMirror(l), s); err != nil {
		t.Errorf("got %v", err)
	}
}
