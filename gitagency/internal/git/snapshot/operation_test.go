package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// The entry of a worktree is written by whoever works there: nothing in it makes us wait, or leads out of it.
func TestWhatIsUnderWayIsReadAsDataAndThroughNoLink(t *testing.T) {
	t.Parallel()
	entry, outside := t.TempDir(), t.TempDir()
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret"), "s")
	write(filepath.Join(entry, "MERGE_MSG"), "m")
	write(filepath.Join(entry, "config"), "c")
	write(filepath.Join(entry, "sequencer", "todo"), "t")
	write(filepath.Join(entry, "refs", "bisect", "bad.lock"), "l")
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(entry, "MERGE_HEAD"), 0o600),
		os.Symlink(outside, filepath.Join(entry, "rebase-merge")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(entry, "AUTO_MERGE")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(entry, "sequencer", "head")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := readOperation(entry)
	if err != nil || len(files) != 2 || string(files["MERGE_MSG"]) != "m" || string(files["sequencer/todo"]) != "t" {
		t.Errorf("%q, %v", files, err)
	}
	// Writing something else there removes the links, and nothing behind them.
	if err := writeOperation(entry, map[string][]byte{"rebase-merge/onto": []byte("o")}); err != nil {
		t.Fatal(err)
	}
	got, err := readOperation(entry)
	if err != nil || len(got) != 1 || string(got["rebase-merge/onto"]) != "o" {
		t.Errorf("%q, %v", got, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(data) != "s" {
		t.Errorf("%q, %v", data, err)
	}
}

// A state is a commit that anybody could have made: of what it says was under way, only what git writes for that is
// ever written.
func TestOnlyWhatSaysWhatIsUnderWayComesOutOfAState(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	blob := l.Git("rev-parse", "main:a.txt")
	for _, name := range []string{"git/MERGE_HEAD", "git/config", "git/hooks/post-checkout", "git/commondir", "git/index", "outside/gitdir", "outside/MERGE_MSG"} {
		l.Git("update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
	}
	held := l.Git("commit-tree", l.Git("write-tree"), "-m", "forged")
	u, err := ReadOperation(t.Context(), repo, State{OperationCommit: held})
	if err != nil || len(u.Files) != 1 || string(u.Files["MERGE_HEAD"]) != "a\n" || len(u.HostFiles) != 1 || string(u.HostFiles["MERGE_MSG"]) != "a\n" {
		t.Errorf("%+v, %v", u, err)
	}
}

// Conflicts come back as they were, with everything else that was staged.
func TestConflictsAreHeldWithWhatElseIsStaged(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	repotest.MakeConflict(l, w)
	l.WriteIn(w.Tree, "beside", "b\n")
	l.GitIn(w.Tree, "add", "beside")
	state, err := ReadState(t.Context(), repo, captureStateOf(l, repo, w, ""))
	if err != nil {
		t.Fatal(err)
	}
	u, err := ReadOperation(t.Context(), repo, state)
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	for _, c := range u.Conflicts {
		stages = append(stages, c.Stage+" "+c.Path)
	}
	if !slices.Equal(stages, []string{"1 a.txt", "2 a.txt", "3 a.txt"}) {
		t.Errorf("%q", stages)
	}
	if got := strings.Fields(l.Git("ls-tree", "-r", "--name-only", u.MergedTree)); !slices.Equal(got, []string{"beside", "dir/b.txt", "link", "run.sh"}) {
		t.Errorf("%q", got)
	}
}
