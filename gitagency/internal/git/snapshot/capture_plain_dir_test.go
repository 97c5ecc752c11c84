package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// plainDirLab is a plain directory that is no worktree, and a bare repository for its states.
type plainDirLab struct {
	*gittest.Fixture
	repo *git.Repo
	spec git.WorktreeSpec
}

func newPlainDirLab(t *testing.T) *plainDirLab {
	t.Helper()
	l := &plainDirLab{Fixture: gittest.NewEmpty(t)}
	l.Must(os.RemoveAll(l.Root))
	home := gittest.TempDir(t)
	l.Root = filepath.Join(home, "git") // repository of the states
	l.Must(os.Mkdir(l.Root, 0o700))
	l.Must(git.InitBare(l.Root))
	l.spec = git.WorktreeSpec{
		Name: "plain", Dir: filepath.Join(home, "tree"), IndexCache: filepath.Join(home, "memory"),
		Message: "state\n\nAgency-Version: 1", Author: object.Identity{Name: "a", Email: "a@example.com"},
	}
	l.Must(os.Mkdir(l.spec.Dir, 0o755))
	l.reopen()
	return l
}

// reopen opens the repository again, with git variables in the environment that must be ignored.
func (l *plainDirLab) reopen() {
	l.T.Helper()
	repo, err := git.OpenBare(l.T.Context(), l.Root, append(slices.Clone(l.Env), "GIT_DIR=/nowhere", "GIT_INDEX_FILE=/nowhere"))
	l.Must(err)
	l.repo = repo
}

// writeFile writes a file in the directory.
func (l *plainDirLab) writeFile(name, content string) {
	l.T.Helper()
	l.Fixture.WriteIn(l.spec.Dir, name, content)
}

// captureState captures the directory.
func (l *plainDirLab) captureState(previous string) CapturedState {
	l.T.Helper()
	f, err := CaptureState(l.T.Context(), l.repo, l.spec, previous)
	l.Must(err)
	return f
}

func TestCaptureStateOfPlainDirectory(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	l.writeFile("a.txt", "a\n")
	l.writeFile("dir/b\nc", "b\n")
	l.writeFile("dir/\xff", "not UTF-8\n")
	l.writeFile(".gitignore", "*.log\n")
	l.writeFile("x.log", "ignored\n")
	l.writeFile("dir/y.log", "ignored\n")
	l.Must(os.Symlink("nowhere", filepath.Join(l.spec.Dir, "link")))
	before := gittest.DiskState(t, l.spec.Dir)
	first := l.captureState("")
	want := map[string]string{
		"a.txt": "100644 a\n", "dir/b\nc": "100644 b\n", "dir/\xff": "100644 not UTF-8\n", ".gitignore": "100644 *.log\n", "link": "120000 nowhere",
	}
	if got := l.Files(first.Commit); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if got := l.Git("log", "--format=%P|%B", first.Commit); got != "|state\n\nAgency-Version: 1\n" {
		t.Errorf("%q", got)
	}
	if again := l.captureState(first.Commit); again.Commit != first.Commit {
		t.Error("another state without a change")
	}
	l.writeFile("a.txt", "b\n")
	second := l.captureState(first.Commit)
	if got := l.Git("log", "--format=%P", "-1", second.Commit); got != first.Commit {
		t.Errorf("the parents are %q", got)
	}
	l.writeFile("a.txt", "a\n")
	if fmt.Sprint(gittest.DiskState(t, l.spec.Dir)) != fmt.Sprint(before) {
		t.Error("the directory was changed")
	}
	repotest.RequireEmptyAgencyDir(l.Fixture, l.repo)
}

func TestCaptureStateOfEmptyPlainDirectory(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	empty := l.captureState("")
	if len(l.Files(empty.Commit)) != 0 {
		t.Error(l.Files(empty.Commit))
	}
	l.writeFile("a", "a")
	l.Must(os.Mkdir(filepath.Join(l.spec.Dir, "hollow"), 0o755))
	full := l.captureState(empty.Commit)
	l.Must(os.Remove(filepath.Join(l.spec.Dir, "a")))
	if gone := l.captureState(full.Commit); len(l.Files(gone.Commit)) != 0 || gone.Commit == full.Commit {
		t.Error(l.Files(gone.Commit))
	}
}

func TestCaptureStateReadsOnlyChangedFiles(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	log := filepath.Join(gittest.TempDir(t), "log")
	l.Must(os.WriteFile(l.GlobalConfig, fmt.Appendf(nil, "[filter \"count\"]\n\tclean = \"echo %%f >>%s; cat\"\n", log), 0o644))
	l.reopen()
	l.writeFile(".gitattributes", "*.txt filter=count\n")
	for i := range 20 {
		l.writeFile(fmt.Sprintf("%d/%d.txt", i%3, i), strings.Repeat("x", i+1))
	}
	old := time.Now().Add(-time.Hour)
	l.Must(filepath.WalkDir(l.spec.Dir, func(path string, _ os.DirEntry, _ error) error { return os.Chtimes(path, old, old) }))
	read := func(previous string) (string, []string) {
		l.Must(os.WriteFile(log, nil, 0o644))
		commit := l.captureState(previous).Commit
		data, err := os.ReadFile(log)
		l.Must(err)
		return commit, strings.Fields(string(data))
	}
	first, names := read("")
	if len(names) != 20 {
		t.Errorf("the first capture read %q", names)
	}
	l.writeFile("1/4.txt", "other")
	l.writeFile("new.txt", "new")
	l.Must(os.Remove(filepath.Join(l.spec.Dir, "2/5.txt")))
	second, names := read(first)
	slices.Sort(names) // a file that changed just now may be read twice
	if names = slices.Compact(names); !slices.Equal(names, []string{"1/4.txt", "new.txt"}) {
		t.Errorf("the second capture read %q", names)
	}
	l.Must(os.WriteFile(l.spec.IndexCache, []byte("damaged"), 0o600))
	if third, names := read(second); third != second || len(names) != 20 {
		t.Errorf("without an index cache it read %q", names)
	}
}

func TestCaptureStateSeesSameSizeChanges(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	previous := ""
	for i := range 30 {
		l.writeFile("a.txt", fmt.Sprintf("%02d", i))
		previous = l.captureState(previous).Commit
		if got := l.Files(previous)["a.txt"]; got != fmt.Sprintf("100644 %02d", i) {
			t.Fatalf("round %d: %q", i, got)
		}
	}
}

func TestCaptureStateDoesNotTrackEarlierFiles(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	l.writeFile(".env", "secret")
	l.writeFile(".gitignore", "*.log\n")
	l.writeFile("x.log", "log")
	l.writeFile("kept", "kept")
	all := l.spec
	all.IncludeIgnored = true
	got, err := CaptureState(t.Context(), l.repo, all, "")
	l.Must(err)
	if len(l.Files(got.Commit)) != 4 {
		t.Errorf("%q", l.Files(got.Commit))
	}
	l.spec.SecretPatterns = []string{".env*"}
	l.writeFile(".gitignore", "*.log\nkept\n")
	later := l.captureState(got.Commit)
	if files := l.Files(later.Commit); len(files) != 1 || files[".gitignore"] == "" {
		t.Errorf("%q", files)
	}
	if !slices.Equal(later.LeftOut, []status.LeftOut{{Path: ".env", Reason: status.OmitSecret}}) {
		t.Errorf("%v", later.LeftOut)
	}
}

func TestCaptureStateRewritesMissingCachedObjects(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	l.writeFile("a.txt", "a\n")
	l.writeFile("b.txt", "b\n")
	first := l.captureState("")
	blob := l.Git("rev-parse", first.Commit+":b.txt")
	l.Must(os.RemoveAll(filepath.Join(l.Root, "objects")))
	l.Must(os.Mkdir(filepath.Join(l.Root, "objects"), 0o700))
	second := l.captureState("")
	if got := l.Git("cat-file", "blob", blob); got != "b" || l.Files(second.Commit)["b.txt"] == "" {
		t.Errorf("%q", got)
	}
}

func TestCaptureStateLeavesOutNestedRepositories(t *testing.T) {
	t.Parallel()
	l := newPlainDirLab(t)
	l.writeFile("a/b/c", "c")
	l.GitIn(l.spec.Dir, "init", "-q", "top")
	l.GitIn(l.spec.Dir, "init", "-q", "a/b/deep")
	l.writeFile("a/b/deep/file", "theirs")
	l.writeFile("top/file", "theirs")
	got := l.captureState("")
	if want := []status.LeftOut{{Path: "a/b/deep", Reason: status.OmitRepository}, {Path: "top", Reason: status.OmitRepository}}; !slices.Equal(got.LeftOut, want) {
		t.Errorf("%v", got.LeftOut)
	}
	if files := l.Files(got.Commit); len(files) != 1 {
		t.Errorf("%q", files)
	}
}

func TestCaptureStateOfPlainDirectoryRefusesUnreadable(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	for _, name := range []string{"closed", "dir/closed", "dir/sub"} {
		l := newPlainDirLab(t)
		l.writeFile("dir/sub/file", "x")
		if name != "dir/sub" {
			l.writeFile(name, "x")
		}
		closed := filepath.Join(l.spec.Dir, name)
		l.Must(os.Chmod(closed, 0))
		if f, err := CaptureState(t.Context(), l.repo, l.spec, ""); err == nil {
			t.Errorf("%s: %q", name, l.Files(f.Commit))
		}
		if fi, err := os.Lstat(closed); err != nil || fi.Mode().Perm() != 0 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		l.Must(os.Chmod(closed, 0o755))
	}
}
