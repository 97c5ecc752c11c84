package merge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: Compare works in plain, bare and SHA-256 repositories, takes paths literally, and leaves no temporary files.
func TestCompareInEveryKindOfRepository(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name string
		init []string
	}{
		{"plain", nil},
		{"bare", []string{"--bare"}},
		{"sha256", []string{"--object-format=sha256"}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			l := newCompareLab(t, kind.init...)
			before := l.commit(map[string]string{"a": "1\n", "dir/b": "2\n", "glob*": "x\n", "globbed": "x\n", "bin": "\x00\n"})
			after := l.commit(map[string]string{"a": "one\n", "dir/b": "two\n", "glob*": "y\n", "globbed": "y\n", "bin": "\x00longer\n"})
			m, err := l.repo.NewMirror(before)
			if err != nil {
				t.Fatal(err)
			}
			compare := func(c CompareRequest) string {
				t.Helper()
				c.From, c.To = before, after
				text, err := Compare(t.Context(), m, c)
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
			if text := compare(CompareRequest{}); strings.Count(text, "\ndiff --git ") != 5 || !strings.Contains(text, "\n-1\n+one\n") {
				t.Errorf("got %s", text)
			}
			for path, files := range map[string]int{"a": 1, "dir": 1, "dir/b": 1, "di": 0, "glob*": 1, "*": 0, ":/": 0, ":(top)a": 0} {
				if text := compare(CompareRequest{Paths: []string{path}, Detail: Names}); strings.Count(text, ":") != files {
					t.Errorf("%s: got %q", path, text)
				}
			}
			if _, err := Compare(t.Context(), m, CompareRequest{From: before, To: after, Limit: 100}); !errors.Is(err, ErrTooLong) {
				t.Errorf("a limit of 100 bytes: %v", err)
			}
			blob := strings.TrimSpace(l.git("rev-parse", after+":bin"))
			sizes, err := Sizes(t.Context(), m, blob, strings.Repeat("1", len(blob)))
			if err != nil || len(sizes) != 1 || sizes[blob] != 8 {
				t.Errorf("%v: %v", sizes, err)
			}
			if _, err := Compare(t.Context(), m, CompareRequest{From: strings.Repeat("1", len(blob)), To: after}); err == nil {
				t.Error("compared a commit that does not exist")
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(m.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the mirror directory still exists: %v", err)
			}
		})
	}
}

// compareLab is a repository without files, in which git runs without the config of the machine.
type compareLab struct {
	t    *testing.T
	dir  string
	repo *git.Repo
	git  func(args ...string) string
}

func newCompareLab(t *testing.T, init ...string) *compareLab {
	t.Helper()
	l := &compareLab{t: t, dir: filepath.Join(t.TempDir(), "repo")}
	env := append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@localhost")
	run := git.Runner{Dir: filepath.Dir(l.dir), Env: env}
	l.git = func(args ...string) string {
		t.Helper()
		out, err := run.Output(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	l.git(append(append([]string{"init", "-q", "-b", "main", gittest.WithTemplate(t)}, init...), l.dir)...)
	run.Dir = l.dir
	var err error
	if l.repo, err = git.Open(t.Context(), l.dir, env); err != nil {
		t.Fatal(err)
	}
	return l
}

// commit makes a commit that holds only these files, without a worktree.
func (l *compareLab) commit(files map[string]string) string {
	l.t.Helper()
	index := filepath.Join(l.t.TempDir(), "index")
	run := func(stdin string, args ...string) string {
		l.t.Helper()
		out, err := l.repo.RunWrite(l.t.Context(), git.RunOptions{Stdin: stdin, Env: []string{
			"GIT_INDEX_FILE=" + index,
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@localhost",
		}}, args...)
		if err != nil {
			l.t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	var info strings.Builder
	for path, content := range files {
		info.WriteString("100644 " + run(content, "hash-object", "-w", "--stdin") + "\t" + path + "\x00")
	}
	run(info.String(), "update-index", "-z", "--index-info")
	return run("", "commit-tree", run("", "write-tree"), "-m", "x")
}
