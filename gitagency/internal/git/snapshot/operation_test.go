package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// readOperation and writeOperation neither block on FIFOs nor follow symlinks in a worktree's git directory, which
// processes in the sandbox can write to.
func TestReadOperationFollowsNoSymlinkOrFIFO(t *testing.T) {
	t.Parallel()
	adminDir, outside := t.TempDir(), t.TempDir()
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
	write(filepath.Join(adminDir, "MERGE_MSG"), "m")
	write(filepath.Join(adminDir, "config"), "c")
	write(filepath.Join(adminDir, "sequencer", "todo"), "t")
	write(filepath.Join(adminDir, "refs", "bisect", "bad.lock"), "l")
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(adminDir, "MERGE_HEAD"), 0o600),
		os.Symlink(outside, filepath.Join(adminDir, "rebase-merge")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(adminDir, "AUTO_MERGE")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(adminDir, "sequencer", "head")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := readOperation(adminDir)
	if err != nil || len(files) != 2 || string(files["MERGE_MSG"]) != "m" || string(files["sequencer/todo"]) != "t" {
		t.Errorf("%q, %v", files, err)
	}
	// Writing another operation removes the symlinks, but not their targets.
	if err := writeOperation(adminDir, map[string][]byte{"rebase-merge/onto": []byte("o")}); err != nil {
		t.Fatal(err)
	}
	got, err := readOperation(adminDir)
	if err != nil || len(got) != 1 || string(got["rebase-merge/onto"]) != "o" {
		t.Errorf("%q, %v", got, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(data) != "s" {
		t.Errorf("%q, %v", data, err)
	}
}

// ReadOperation returns only files that git itself writes for an operation in progress: the commit may be forged.
func TestReadOperationReturnsOnlyOperationFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	blob := l.Git("rev-parse", "main:a.txt")
	for _, name := range []string{"git/MERGE_HEAD", "git/config", "git/hooks/post-checkout", "git/commondir", "git/index", "outside/gitdir", "outside/MERGE_MSG"} {
		l.Git("update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
	}
	operation := l.Git("commit-tree", l.Git("write-tree"), "-m", "forged")
	u, err := ReadOperation(t.Context(), repo, State{OperationCommit: operation})
	if err != nil || len(u.Files) != 1 || string(u.Files["MERGE_HEAD"]) != "a\n" || len(u.HostFiles) != 1 || string(u.HostFiles["MERGE_MSG"]) != "a\n" {
		t.Errorf("%+v, %v", u, err)
	}
}

// ReadOperation returns the unmerged entries of a captured index, and a tree of its merged entries.
func TestReadOperationReturnsConflictsAndMergedTree(t *testing.T) {
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
		t.Errorf("the conflicts are %q", stages)
	}
	if got := strings.Fields(l.Git("ls-tree", "-r", "--name-only", u.MergedTree)); !slices.Equal(got, []string{"beside", "dir/b.txt", "link", "run.sh"}) {
		t.Errorf("the merged tree holds %q", got)
	}
}

// AUTO_MERGE of an agent can name some trees, of which each has the next under two names: git read-tree would not end.
func TestCaptureOfNestedTreesEndsAtLimits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	repo.ReadLimits = readlimit.Limits{Time: time.Second, Memory: 256 << 20}
	tree := l.MakeTree("100644 blob " + l.MakeBlob("x") + "\tf")
	for range 30 {
		tree = l.MakeTree("040000 tree "+tree+"\ta", "040000 tree "+tree+"\tb")
	}
	l.Must(os.WriteFile(filepath.Join(repo.AdminDir(w.Name), "AUTO_MERGE"), []byte(tree+"\n"), 0o600))
	head := l.Git("rev-parse", "main")
	gittest.Within(t, "the capture of the operation", func() {
		_, err := captureOperation(t.Context(), repo, repotest.SpecOf(l, w), State{Head: head, BranchTip: head, IndexTree: l.Git("rev-parse", "main^{tree}")}, index.File{})
		if !errors.As(err, new(*readlimit.ExceededError)) {
			t.Error(err)
		}
	})
}
