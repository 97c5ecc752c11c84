package discard_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Promise: Restore returns the state of the last discard. The archive of an earlier one that was killed before it wrote
// the record has no effect.
func TestRestoreIgnoresArchiveOfKilledDiscard(t *testing.T) {
	t.Parallel()
	fail := true
	var file string
	var left []byte
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) (err error) {
		if at != "discard/trash:before" || !fail {
			return nil
		}
		left, err = os.ReadFile(file)
		return errors.Join(err, errors.New("on purpose"))
	}})
	file = l.Repo.Store.TrashArchivePath(l.Repo.ID, l.Sandbox.ID)
	tree := l.Sandbox.WorkDir()
	l.WriteFile(".gitattributes", "*.txt working-tree-encoding=UTF-16\n")
	l.WriteFile("odd.txt", "odd")
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err == nil || len(left) == 0 {
		t.Fatalf("an archive of %d bytes: %v", len(left), err)
	}
	// A killed process does not undo its steps.
	if err := errors.Join(l.Repo.Store.EnsureTrashDir(l.Repo.ID), os.WriteFile(file, left, 0o600)); err != nil {
		t.Fatal(err)
	}
	fail = false
	if err := errors.Join(os.Remove(filepath.Join(tree, ".gitattributes")), os.Remove(filepath.Join(tree, "odd.txt"))); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("later", "later\n")
	if d, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil || d.TrashArchive != "" {
		t.Fatalf("%+v, %v", d, err)
	}
	again, err := creation.Restore(t.Context(), l.Repo, l.Sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	restored := l.Repo.Store.SandboxTreePath(l.Repo.ID, again.ID)
	if data, err := os.ReadFile(filepath.Join(restored, "later")); string(data) != "later\n" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(restored, "odd.txt")); !os.IsNotExist(err) {
		t.Errorf("the old file is restored: %v", err)
	}
}

// Promise: Restore takes no commit of an agent for a capture, whichever author the commit has.
func TestRestoreKeepsCommitWithAuthorOfTool(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.StartWithoutWalls()
	l.WriteFile("file", "agent\n")
	l.Git("add", "file")
	l.Git("commit", "-q", "-m", "agent", "--author="+core.ToolIdentity.Name+" <"+core.ToolIdentity.Email+">")
	head := l.Git("rev-parse", "HEAD")
	l.WriteFile("untracked", "new\n")
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}
	again, err := creation.Restore(t.Context(), l.Repo, l.Sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := l.Repo.Git.Tip(t.Context(), core.SandboxRef(again.ID)); err != nil || at != head {
		t.Errorf("the branch is at %s, want %s: %v", at, head, err)
	}
}

func TestDiscardedSandboxTakesNoSnapshot(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); !fault.Is[*fault.EndedError](err) {
		t.Error(err)
	}
}

// Promise: Restore returns files that were added after a discard whose archive holds the whole tree, although a commit
// could hold them.
func TestRestoreReturnsLateFilesOfArchivedTree(t *testing.T) {
	t.Parallel()
	fail := true
	l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at != "discard/tree:before" || !fail {
			return nil
		}
		return errors.New("on purpose")
	}})
	tree := l.Sandbox.WorkDir()
	l.WriteFile(".gitattributes", "*.txt working-tree-encoding=UTF-16\n")
	l.WriteFile("odd.txt", "odd")
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); !fault.Is[*fault.CleanupError](err) {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(tree, ".gitattributes")), os.Remove(filepath.Join(tree, "odd.txt"))); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("late", "late\n")
	fail = false
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}
	again, err := creation.Restore(t.Context(), l.Repo, l.Sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	restored := l.Repo.Store.SandboxTreePath(l.Repo.ID, again.ID)
	for name, want := range map[string]string{"late": "late\n", "odd.txt": "odd"} {
		if data, err := os.ReadFile(filepath.Join(restored, name)); string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// Promise: files that appear in a tree after a discard failed to delete it are kept by the next one.
func TestDiscardKeepsFilesAddedAfterFailedRemoval(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	dir := filepath.Join(l.Sandbox.WorkDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("dir/early", "early\n")
	if out, err := exec.CommandContext(t.Context(), "chattr", "+a", dir).CombinedOutput(); err != nil { // nothing in it can be deleted
		t.Skipf("this user cannot make a directory append-only: %v: %s", err, out)
	}
	aside := filepath.Join(store.WithdrawnPath(l.Sandbox.WorkDir()), "dir")
	t.Cleanup(func() {
		for _, d := range []string{dir, aside} {
			_ = exec.Command("chattr", "-a", d).Run() // at most one of them exists
		}
	})
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); !fault.Is[*fault.CleanupError](err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(aside, "late"), []byte("late\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "chattr", "-a", aside).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir/early", "dir/late"} {
		found, err := l.Repo.Git.Lookup(t.Context(), d.Commit+":"+name)
		if err != nil || found[0].Missing() {
			t.Errorf("%s is not kept: %v", name, err)
		}
	}
}

// Promise: an archive of files that appeared after the capture is in the record before the files are deleted.
func TestDiscardRecordsArchiveOfLateFiles(t *testing.T) {
	t.Parallel()
	var l *sandboxtest.Fixture
	recorded := false
	l = sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		switch at {
		case "discard/tree:before":
			return syscall.Mkfifo(filepath.Join(l.Sandbox.WorkDir(), "pipe"), 0o600)
		case "discard/files:before":
			recorded = l.Repo.Store.Invocation(l.Repo.ID, l.Sandbox.ID, nil).Record.HasTrashArchive
		}
		return nil
	}})
	l.WriteFile("file", "text\n")
	if d, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err != nil || d.TrashArchive == "" {
		t.Fatalf("%+v, %v", d, err)
	}
	if !recorded {
		t.Error("the record does not name the archive")
	}
}

// Promise: a file that is not kept is named once, although a late change makes Run read the tree again.
func TestDiscardNamesLossOnce(t *testing.T) {
	t.Parallel()
	var l *sandboxtest.Fixture
	l = sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == "discard/tree:before" {
			l.WriteFile("late", "late\n")
		}
		return nil
	}}, "agency.trashLimit", "256k")
	l.Git("init", "-q", "lib")
	l.WriteFile("lib/large", strings.Repeat("0123456789abcdef", 1<<16))
	d, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	named := slices.DeleteFunc(slices.Clone(d.Lost), func(lost string) bool { return !strings.Contains(lost, "lib/large") })
	if len(named) != 1 {
		t.Errorf("%q", d.Lost)
	}
}
