package git

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plainLab is a directory that is no worktree, and a repository of our own for its states.
type plainLab struct {
	*lab
	repo *Repo
	s    WorktreeSpec
}

func newPlainLab(t *testing.T) *plainLab {
	t.Helper()
	l := &plainLab{lab: emptyLab(t)}
	l.must(os.RemoveAll(l.dir))
	home := tempDir(t)
	l.dir = filepath.Join(home, "git") // where git looks at what was frozen
	l.must(os.Mkdir(l.dir, 0o700))
	l.must(InitBare(l.dir))
	l.s = WorktreeSpec{
		Name: "plain", Dir: filepath.Join(home, "tree"), IndexCache: filepath.Join(home, "memory"),
		Message: "state\n\nAgency-Version: 1", Author: Identity{Name: "a", Email: "a@example.com"},
	}
	l.must(os.Mkdir(l.s.Dir, 0o755))
	l.reopen()
	return l
}

func (l *plainLab) reopen() {
	l.t.Helper()
	repo, err := OpenBare(l.t.Context(), l.dir, append(slices.Clone(l.env), "GIT_DIR=/nowhere", "GIT_INDEX_FILE=/nowhere"))
	l.must(err)
	l.repo = repo
}

func (l *plainLab) put(name, content string) { l.t.Helper(); l.lab.put(l.s.Dir, name, content) }

func (l *plainLab) freeze(previous string) CapturedState {
	l.t.Helper()
	f, err := l.repo.CaptureState(l.t.Context(), l.s, previous)
	l.must(err)
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
	l.must(os.Symlink("nowhere", filepath.Join(l.s.Dir, "link")))
	before := states(t, l.s.Dir)
	first := l.freeze("")
	want := map[string]string{
		"a.txt": "100644 a\n", "dir/b\nc": "100644 b\n", "dir/\xff": "100644 not UTF-8\n", ".gitignore": "100644 *.log\n", "link": "120000 nowhere",
	}
	if got := l.files(first.Commit); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if got := l.git("log", "--format=%P|%B", first.Commit); got != "|state\n\nAgency-Version: 1\n" {
		t.Errorf("%q", got)
	}
	if again := l.freeze(first.Commit); again.Commit != first.Commit {
		t.Error("nothing has changed, and it is another state")
	}
	l.put("a.txt", "b\n")
	second := l.freeze(first.Commit)
	if got := l.git("log", "--format=%P", "-1", second.Commit); got != first.Commit {
		t.Errorf("its parents are %q", got)
	}
	l.put("a.txt", "a\n")
	if fmt.Sprint(states(t, l.s.Dir)) != fmt.Sprint(before) {
		t.Error("the directory was touched")
	}
	l.requireNothingBeside(l.repo)
}

func TestADirectoryWithNothingInItIsAStateToo(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	empty := l.freeze("")
	if len(l.files(empty.Commit)) != 0 {
		t.Error(l.files(empty.Commit))
	}
	l.put("a", "a")
	l.must(os.Mkdir(filepath.Join(l.s.Dir, "hollow"), 0o755))
	full := l.freeze(empty.Commit)
	l.must(os.Remove(filepath.Join(l.s.Dir, "a")))
	if gone := l.freeze(full.Commit); len(l.files(gone.Commit)) != 0 || gone.Commit == full.Commit {
		t.Error(l.files(gone.Commit))
	}
}

func TestOnlyWhatHasChangedIsReadAgain(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	log := filepath.Join(tempDir(t), "log")
	l.must(os.WriteFile(l.global, fmt.Appendf(nil, "[filter \"count\"]\n\tclean = \"echo %%f >>%s; cat\"\n", log), 0o644))
	l.reopen()
	l.put(".gitattributes", "*.txt filter=count\n")
	for i := range 20 {
		l.put(fmt.Sprintf("%d/%d.txt", i%3, i), strings.Repeat("x", i+1))
	}
	old := time.Now().Add(-time.Hour)
	l.must(filepath.WalkDir(l.s.Dir, func(path string, _ os.DirEntry, _ error) error { return os.Chtimes(path, old, old) }))
	read := func(previous string) (string, []string) {
		l.must(os.WriteFile(log, nil, 0o644))
		commit := l.freeze(previous).Commit
		data, err := os.ReadFile(log)
		l.must(err)
		return commit, strings.Fields(string(data))
	}
	first, names := read("")
	if len(names) != 20 {
		t.Errorf("at first it read %q", names)
	}
	l.put("1/4.txt", "other")
	l.put("new.txt", "new")
	l.must(os.Remove(filepath.Join(l.s.Dir, "2/5.txt")))
	second, names := read(first)
	slices.Sort(names) // what changed just now may be looked at twice
	if names = slices.Compact(names); !slices.Equal(names, []string{"1/4.txt", "new.txt"}) {
		t.Errorf("then it read %q", names)
	}
	l.must(os.WriteFile(l.s.IndexCache, []byte("damaged"), 0o600))
	if third, names := read(second); third != second || len(names) != 20 {
		t.Errorf("without a memory it read %q", names)
	}
}

func TestAChangeThatLeavesSizeAndTimeAloneIsSeen(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	previous := ""
	for i := range 30 {
		l.put("a.txt", fmt.Sprintf("%02d", i))
		previous = l.freeze(previous).Commit
		if got := l.files(previous)["a.txt"]; got != fmt.Sprintf("100644 %02d", i) {
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
	got, err := l.repo.CaptureState(t.Context(), all, "")
	l.must(err)
	if len(l.files(got.Commit)) != 4 {
		t.Errorf("%q", l.files(got.Commit))
	}
	l.s.SecretPatterns = []string{".env*"}
	l.put(".gitignore", "*.log\nkept\n")
	later := l.freeze(got.Commit)
	if files := l.files(later.Commit); len(files) != 1 || files[".gitignore"] == "" {
		t.Errorf("%q", files)
	}
	if !slices.Equal(later.LeftOut, []LeftOut{{".env", OmitSecret}}) {
		t.Errorf("%v", later.LeftOut)
	}
}

func TestWhatIsRememberedAndGoneFromTheRepositoryIsReadAgain(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put("a.txt", "a\n")
	l.put("b.txt", "b\n")
	first := l.freeze("")
	blob := l.git("rev-parse", first.Commit+":b.txt")
	l.must(os.RemoveAll(filepath.Join(l.dir, "objects")))
	l.must(os.Mkdir(filepath.Join(l.dir, "objects"), 0o700))
	second := l.freeze("")
	if got := l.git("cat-file", "blob", blob); got != "b" || l.files(second.Commit)["b.txt"] == "" {
		t.Errorf("%q", got)
	}
}

func TestARepositoryInADirectoryIsLeftOutWhereverItIs(t *testing.T) {
	t.Parallel()
	l := newPlainLab(t)
	l.put("a/b/c", "c")
	l.in(l.s.Dir, "init", "-q", "top")
	l.in(l.s.Dir, "init", "-q", "a/b/deep")
	l.put("a/b/deep/file", "theirs")
	l.put("top/file", "theirs")
	got := l.freeze("")
	if want := []LeftOut{{"a/b/deep", OmitRepository}, {"top", OmitRepository}}; !slices.Equal(got.LeftOut, want) {
		t.Errorf("%v", got.LeftOut)
	}
	if files := l.files(got.Commit); len(files) != 1 {
		t.Errorf("%q", files)
	}
}

func TestAroundFindsTheRepositoryThatADirectoryBelongsTo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	home := tempDir(t)
	for _, dir := range []string{"plain/sub", "stray/.git", "stray/sub"} {
		l.must(os.MkdirAll(filepath.Join(home, dir), 0o755))
	}
	for dir, want := range map[string]string{
		l.dir:                                l.dir,
		filepath.Join(l.dir, "dir"):          l.dir,
		filepath.Join(w.Tree, "dir"):         w.Tree,
		filepath.Join(l.dir, ".git/objects"): filepath.Join(l.dir, ".git"),
		filepath.Join(home, "plain/sub"):     "",
		filepath.Join(home, "stray"):         filepath.Join(home, "stray"),
		filepath.Join(home, "stray/sub"):     "", // git takes an empty .git for none
	} {
		if got, err := EnclosingRepo(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v", dir, got, err)
		}
	}
}

func TestADirectoryWithWhatCannotBeReadIsRefusedAndLeftSo(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	for _, name := range []string{"closed", "dir/closed", "dir/sub"} {
		l := newPlainLab(t)
		l.put("dir/sub/file", "x")
		if name != "dir/sub" {
			l.put(name, "x")
		}
		closed := filepath.Join(l.s.Dir, name)
		l.must(os.Chmod(closed, 0))
		if f, err := l.repo.CaptureState(t.Context(), l.s, ""); err == nil {
			t.Errorf("%s: %q", name, l.files(f.Commit))
		}
		if fi, err := os.Lstat(closed); err != nil || fi.Mode().Perm() != 0 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		l.must(os.Chmod(closed, 0o755))
	}
}
