package status

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// CountChanges counts the files that git status lists.
func TestCountChangesMatchesGitStatus(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *gittest.Fixture, w worktree.Registration){
		"nothing": func(*gittest.Fixture, worktree.Registration) {},
		"changed, same size": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "a.txt", "b\n")
		},
		"changed, other size": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "a.txt", "longer\n")
			l.WriteIn(w.Tree, "dir/b.txt", "")
		},
		"touched": func(l *gittest.Fixture, w worktree.Registration) {
			l.Must(os.Chtimes(filepath.Join(w.Tree, "a.txt"), time.Unix(1, 0), time.Unix(1, 0)))
		},
		"mode, type and target": func(l *gittest.Fixture, w worktree.Registration) {
			l.Must(os.Chmod(filepath.Join(w.Tree, "a.txt"), 0o755))
			l.Must(os.Remove(filepath.Join(w.Tree, "run.sh")))
			l.Must(os.Symlink("a.txt", filepath.Join(w.Tree, "run.sh")))
			l.Must(os.Remove(filepath.Join(w.Tree, "link")))
			l.Must(os.Symlink("b.txt", filepath.Join(w.Tree, "link")))
		},
		"removed": func(l *gittest.Fixture, w worktree.Registration) {
			l.Must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
		},
		"untracked and ignored": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, ".gitignore", "*.o\n/out/\n")
			l.WriteIn(w.Tree, "x.o", "ignored\n")
			l.WriteIn(w.Tree, "out/x", "ignored\n")
			l.WriteIn(w.Tree, "new/x", "x\n")
			l.WriteIn(w.Tree, "new/deep/y", "y\n")
			l.WriteIn(w.Tree, ".env", "looks like a secret\n")
		},
		"staged": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "a.txt", "staged\n")
			l.WriteIn(w.Tree, "new/x", "x\n")
			l.GitIn(w.Tree, "add", "-A")
			l.GitIn(w.Tree, "rm", "-q", "--cached", "run.sh")
			l.GitIn(w.Tree, "rm", "-q", "-r", "dir")
		},
		"staged and changed again": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "a.txt", "staged\n")
			l.GitIn(w.Tree, "add", "-A")
			l.WriteIn(w.Tree, "a.txt", "a\n")
			l.WriteIn(w.Tree, "dir/b.txt", "c\n")
		},
		"file in place of a directory": func(l *gittest.Fixture, w worktree.Registration) {
			l.Must(os.RemoveAll(filepath.Join(w.Tree, "dir")))
			l.WriteIn(w.Tree, "dir", "file\n")
			l.GitIn(w.Tree, "add", "-A")
		},
		"intended to be added": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "empty", "")
			l.GitIn(w.Tree, "add", "-N", "empty")
		},
		"committed": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, "a.txt", "committed\n")
			l.GitIn(w.Tree, "commit", "-q", "-a", "-m", "second")
			l.WriteIn(w.Tree, "b", "b\n")
		},
		"conflict": repotest.MakeConflict,
		"converted": func(l *gittest.Fixture, w worktree.Registration) {
			l.WriteIn(w.Tree, ".gitattributes", "*.txt text eol=crlf\n")
			l.WriteIn(w.Tree, "a.txt", "a\r\n")
			l.GitIn(w.Tree, "add", "-A")
			l.GitIn(w.Tree, "commit", "-q", "-m", "second")
			l.Must(os.Chtimes(filepath.Join(w.Tree, "a.txt"), time.Unix(1, 0), time.Unix(1, 0)))
		},
		"nested repository": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "init", "-q", "nested")
			l.WriteIn(w.Tree, "nested/x", "x\n")
		},
		"split index": func(l *gittest.Fixture, w worktree.Registration) {
			l.GitIn(w.Tree, "update-index", "--split-index")
			l.WriteIn(w.Tree, "a.txt", "b\n")
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			change(l, w)
			spec := repotest.SpecOf(l, w)
			spec.SecretPatterns = []string{".env"}
			head := l.GitIn(w.Tree, "rev-parse", "HEAD")
			got, err := CountChanges(t.Context(), repo, spec, CountRequest{Head: head, HeadTree: l.GitIn(w.Tree, "rev-parse", "HEAD^{tree}"), Clock: FileClockOf(w.Tree)})
			l.Must(err)
			listed := l.GitIn(w.Tree, "--no-optional-locks", "-c", "status.renames=false", "status", "--porcelain", "-uall")
			paths := map[string]bool{}
			for line := range strings.Lines(listed) {
				paths[strings.TrimSpace(line[3:])] = true // after the two letters of its status; a path may be listed twice
			}
			if got != len(paths) {
				t.Errorf("got %d, want %d:\n%s", got, len(paths), listed)
			}
			repotest.RequireEmptyAgencyDir(l, repo)
		})
	}
}

// A worktree of which much would have to be read is refused instead.
func TestCountChangesReadsLittle(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("large", strings.Repeat("x", maxMemoryBytes+1))
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "large")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	head, tree := l.GitIn(w.Tree, "rev-parse", "HEAD"), l.GitIn(w.Tree, "rev-parse", "HEAD^{tree}")
	l.Must(os.Chtimes(filepath.Join(w.Tree, "large"), time.Unix(1, 0), time.Unix(1, 0)))
	if n, err := CountChanges(t.Context(), repo, repotest.SpecOf(l, w), CountRequest{Head: head, HeadTree: tree}); !errors.As(err, new(*TooMuchToReadError)) {
		t.Errorf("got %d, %v", n, err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("no more time"))
	if n, err := CountChanges(ended, repo, repotest.SpecOf(l, w), CountRequest{Head: head, HeadTree: tree}); err == nil {
		t.Errorf("after the end of its time: got %d", n)
	}
}
