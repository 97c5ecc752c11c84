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
type plainLab struct {
	*gittest.Lab
	repo *git.Repo
	s    git.WorktreeSpec
}

func newPlainLab(t *testing.T) *plainLab {
	t.Helper()
	l := &plainLab{Lab: gittest.NewEmpty(t)}
	l.Must(os.RemoveAll(l.Root))
	home := gittest.TempDir(t)
	l.Root = filepath.Join(home, "git") // repository of the states
	l.Must(os.Mkdir(l.Root, 0o700))
	l.Must(git.InitBare(l.Root))
	l.s = git.WorktreeSpec{
		Name: "plain", Dir: filepath.Join(home, "tree"), IndexCache: filepath.Join(home, "memory"),
		Message: "state\n\nAgency-Version: 1", Author: object.Identity{Name: "a", Email: "a@example.com"},
	}
	l.Must(os.Mkdir(l.s.Dir, 0o755))
	l.reopen()
	return l
}

// reopen opens the repository again, with git variables in the environment that must be ignored.
func (l *plainLab) reopen() {
	l.T.Helper()
	repo, err := git.OpenBare(l.T.Context(), l.Root, append(slices.Clone(l.Env), "GIT_DIR=/nowhere", "GIT_INDEX_FILE=/nowhere"))
	l.Must(err)
	l.repo = repo
}

// writeFile writes a file in the directory.
func (l *plainLab) put(name, content string) { l.T.Helper(); l.Lab.WriteIn(l.s.Dir, name, content) }

// captureState captures the directory.
func (l *plainLab) freeze(previous string) CapturedState {
	l.T.Helper()
	f, err := CaptureState(l.T.Context(), l.repo, l.s, previous)
	l.Must(err)
	return f
}

func TestADirectoryThatIsNoWorktreeIsFrozenAsALineOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put("a.txt", "a\n")
	l.put("dir/b\nc", "b\n")
	l.put("dir/\xff", "not UTF-8\n")
	l.put(".gitignore", "*.log\n")
	l.put("x.log", "ignored\n")
	l.put("dir/y.log", "ignored\n")
	l.Must(os.Symlink("nowhere", filepath.Join(l.s.Dir, "link")))
	before := gittest.DiskState(t, l.s.Dir)
	first := l.freeze("")
	want := map[string]string{
		"a.txt": "100644 a\n", "dir/b\nc": "100644 b\n", "dir/\xff": "100644 not UTF-8\n", ".gitignore": "100644 *.log\n", "link": "120000 nowhere",
	}
	if got := l.Files(first.Commit); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if got := l.Git("log", "--format=%P|%B", first.Commit); got != "|state\n\nAgency-Version: 1\n" {
		t.Errorf("%q", got)
	}
	if again := l.freeze(first.Commit); again.Commit != first.Commit {
		t.Error("another state without a change")
	}
	l.put("a.txt", "b\n")
	second := l.freeze(first.Commit)
	if got := l.Git("log", "--format=%P", "-1", second.Commit); got != first.Commit {
		t.Errorf("the parents are %q", got)
	}
	l.put("a.txt", "a\n")
	if fmt.Sprint(gittest.DiskState(t, l.s.Dir)) != fmt.Sprint(before) {
		t.Error("the directory was changed")
	}
	repotest.RequireEmptyAgencyDir(l.Lab, l.repo)
}

func TestADirectoryWithNothingInItIsAStateToo(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	empty := l.freeze("")
	if len(l.Files(empty.Commit)) != 0 {
		t.Error(l.Files(empty.Commit))
	}
	l.put("a", "a")
	l.Must(os.Mkdir(filepath.Join(l.s.Dir, "hollow"), 0o755))
	full := l.freeze(empty.Commit)
	l.Must(os.Remove(filepath.Join(l.s.Dir, "a")))
	if gone := l.freeze(full.Commit); len(l.Files(gone.Commit)) != 0 || gone.Commit == full.Commit {
		t.Error(l.Files(gone.Commit))
	}
}

func TestOnlyWhatHasChangedIsReadAgain(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	log := filepath.Join(gittest.TempDir(t), "log")
	l.Must(os.WriteFile(l.GlobalConfig, fmt.Appendf(nil, "[filter \"count\"]\n\tclean = \"echo %%f >>%s; cat\"\n", log), 0o644))
	l.reopen()
	l.put(".gitattributes", "*.txt filter=count\n")
	for i := range 20 {
		l.put(fmt.Sprintf("%d/%d.txt", i%3, i), strings.Repeat("x", i+1))
	}
	old := time.Now().Add(-time.Hour)
	l.Must(filepath.WalkDir(l.s.Dir, func(path string, _ os.DirEntry, _ error) error { return os.Chtimes(path, old, old) }))
	read := func(previous string) (string, []string) {
		l.Must(os.WriteFile(log, nil, 0o644))
		commit := l.freeze(previous).Commit
		data, err := os.ReadFile(log)
		l.Must(err)
		return commit, strings.Fields(string(data))
	}
	first, names := read("")
	if len(names) != 20 {
		t.Errorf("the first capture read %q", names)
	}
	l.put("1/4.txt", "other")
	l.put("new.txt", "new")
	l.Must(os.Remove(filepath.Join(l.s.Dir, "2/5.txt")))
	second, names := read(first)
	slices.Sort(names) // a file that changed just now may be read twice
	if names = slices.Compact(names); !slices.Equal(names, []string{"1/4.txt", "new.txt"}) {
		t.Errorf("the second capture read %q", names)
	}
	l.Must(os.WriteFile(l.s.IndexCache, []byte("damaged"), 0o600))
	if third, names := read(second); third != second || len(names) != 20 {
		t.Errorf("without an index cache it read %q", names)
	}
}

func TestAChangeThatLeavesSizeAndTimeAloneIsSeen(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	previous := ""
	for i := range 30 {
		l.put("a.txt", fmt.Sprintf("%02d", i))
		previous = l.freeze(previous).Commit
		if got := l.Files(previous)["a.txt"]; got != fmt.Sprintf("100644 %02d", i) {
			t.Fatalf("round %d: %q", i, got)
		}
	}
}

func TestWhatWasTakenOnceIsNotThereforeTracked(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put(".env", "secret")
	l.put(".gitignore", "*.log\n")
	l.put("x.log", "log")
	l.put("kept", "kept")
	all := l.s
	all.IncludeIgnored = true
	got, err := CaptureState(t.Context(), l.repo, all, "")
	l.Must(err)
	if len(l.Files(got.Commit)) != 4 {
		t.Errorf("%q", l.Files(got.Commit))
	}
	l.s.SecretPatterns = []string{".env*"}
	l.put(".gitignore", "*.log\nkept\n")
	later := l.freeze(got.Commit)
	if files := l.Files(later.Commit); len(files) != 1 || files[".gitignore"] == "" {
		t.Errorf("%q", files)
	}
	if !slices.Equal(later.LeftOut, []status.LeftOut{{Path: ".env", Reason: status.OmitSecret}}) {
		t.Errorf("%v", later.LeftOut)
	}
}

func TestWhatIsRememberedAndGoneFromTheRepositoryIsReadAgain(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put("a.txt", "a\n")
	l.put("b.txt", "b\n")
	first := l.freeze("")
	blob := l.Git("rev-parse", first.Commit+":b.txt")
	l.Must(os.RemoveAll(filepath.Join(l.Root, "objects")))
	l.Must(os.Mkdir(filepath.Join(l.Root, "objects"), 0o700))
	second := l.freeze("")
	if got := l.Git("cat-file", "blob", blob); got != "b" || l.Files(second.Commit)["b.txt"] == "" {
		t.Errorf("%q", got)
	}
}

func TestARepositoryInADirectoryIsLeftOutWhereverItIs(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put("a/b/c", "c")
	l.GitIn(l.s.Dir, "init", "-q", "top")
	l.GitIn(l.s.Dir, "init", "-q", "a/b/deep")
	l.put("a/b/deep/file", "theirs")
	l.put("top/file", "theirs")
	got := l.freeze("")
	if want := []status.LeftOut{{Path: "a/b/deep", Reason: status.OmitRepository}, {Path: "top", Reason: status.OmitRepository}}; !slices.Equal(got.LeftOut, want) {
		t.Errorf("%v", got.LeftOut)
	}
	if files := l.Files(got.Commit); len(files) != 1 {
		t.Errorf("%q", files)
	}
}

func TestADirectoryWithWhatCannotBeReadIsRefusedAndLeftSo(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	for _, name := range []string{"closed", "dir/closed", "dir/sub"} {
		l := newPlainLab(t)
		l.put("dir/sub/file", "x")
		if name != "dir/sub" {
			l.put(name, "x")
		}
		closed := filepath.Join(l.s.Dir, name)
		l.Must(os.Chmod(closed, 0))
		if f, err := CaptureState(t.Context(), l.repo, l.s, ""); err == nil {
			t.Errorf("%s: %q", name, l.Files(f.Commit))
		}
		if fi, err := os.Lstat(closed); err != nil || fi.Mode().Perm() != 0 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		l.Must(os.Chmod(closed, 0o755))
	}
}
