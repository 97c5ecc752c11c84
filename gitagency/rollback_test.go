package gitagency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCancelledRollbackIsUndoneOrFinished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point string
		begun bool
	}{
		{"rollback/capture:before", false},
		{"rollback/ref:after", false},
		{"rollback/prepare:after", false},
		{"rollback/note:after", false},
		{"rollback/files:before", true},
		{"rollback/heads:after", true},
		{"rollback/done:before", true},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
				if at == c.point {
					cancel()
				}
				return nil
			}})
			l.writeFile("a", "1\n")
			if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.writeFile("a", "2\n")
			l.writeFile("later", "2\n")
			_, err := l.sandbox.Rollback(ctx, RollbackRequest{Snapshot: l.sandbox.ID + "/1"})
			later, _ := filepath.Glob(filepath.Join(l.sandbox.WorkDir(), "later"))
			switch {
			case c.begun && (err != nil || len(later) > 0):
				t.Errorf("the rollback was not finished: %v", err)
			case !c.begun && (!errors.Is(err, context.Canceled) || len(later) == 0 || strings.Contains(l.listSnapshots(), "/2")):
				t.Errorf("the rollback was not undone: %v, %s", err, l.listSnapshots())
			}
			if l.sandbox.hasRollbackJournal() {
				t.Error("the note of the rollback is left")
			}
			for _, left := range []string{"index.lock", "index.agency", "HEAD.lock", "HEAD.agency"} {
				if _, err := os.Lstat(filepath.Join(l.repo.git.AdminDir(l.sandbox.ID), left)); err == nil {
					t.Errorf("%s is left", left)
				}
			}
		})
	}
}

// Users may edit, stage and commit in the tree of a sandbox at any time. A change between the snapshot of the rollback
// and its lock stops the rollback before it has changed anything.
func TestRollbackRefusesChangesAfterSnapshot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		do    func(l *testRepo)
		stops bool
	}{
		{"changed file", func(l *testRepo) { l.writeFile("a", "3, meanwhile\n") }, true},
		{"new file at a path to restore", func(l *testRepo) { l.writeFile("gone", "meanwhile\n") }, true},
		{"staged file", func(l *testRepo) { l.writeFile("new", "x\n"); l.git("add", "new") }, true},
		{"commit", func(l *testRepo) { l.git("commit", "-q", "--allow-empty", "-m", "meanwhile") }, true},
		{"git status", func(l *testRepo) { l.git("status") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var l *testRepo
			l = newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
				if at == "rollback/ref:after" {
					c.do(l)
				}
				return nil
			}})
			l.writeFile("a", "1\n")
			l.writeFile("gone", "1\n")
			if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.writeFile("a", "2\n")
			if err := os.Remove(filepath.Join(l.sandbox.WorkDir(), "gone")); err != nil {
				t.Fatal(err)
			}
			_, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"})
			if (err != nil) != c.stops || is[*UnfinishedTransitionError](err) {
				t.Fatalf("%v", err)
			}
			data, _ := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "a"))
			if c.stops && string(data) == "1\n" {
				t.Error("the rollback overwrote the change")
			}
			if l.sandbox.hasRollbackJournal() {
				t.Error("the note of the rollback is left")
			}
		})
	}
}

// A rollback changes files in directories without write permission, as Go's module cache has them, and restores the
// mode of the directory.
func TestRollbackInReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{})
	dir := filepath.Join(l.sandbox.WorkDir(), "closed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.writeFile("closed/a", "1\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("closed/a", "2\n")
	l.writeFile("closed/later", "2\n")
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(filepath.Join(dir, "a"))
	if _, err := os.Lstat(filepath.Join(dir, "later")); err == nil || string(data) != "1\n" {
		t.Errorf("a is %q; later: %v", data, err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

// A rollback does not check out skip-worktree entries, whose bits and staged content it restores; files that are
// assumed unchanged are read and restored like any other.
func TestRollbackInSparseCheckout(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{})
	if err := os.Mkdir(filepath.Join(l.sandbox.WorkDir(), "far"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.writeFile("far/away", "1\n")
	l.writeFile("near", "1\n")
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "both")
	l.git("sparse-checkout", "set", "--no-cone", "/near")
	l.git("update-index", "--assume-unchanged", "near")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("near", "2\n")
	blob := l.git("hash-object", "-w", "near")
	l.git("update-index", "--cacheinfo", "100644,"+blob+",far/away")
	l.git("update-index", "--skip-worktree", "far/away")
	before := l.git("ls-files", "-s", "-v")
	if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	if got := l.git("ls-files", "-v"); got != "S far/away\nh near" {
		t.Errorf("%s", got)
	}
	if _, err := os.Lstat(filepath.Join(l.sandbox.WorkDir(), "far", "away")); err == nil {
		t.Error("the skip-worktree file was checked out")
	}
	data, _ := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "near"))
	if string(data) != "1\n" || l.git("status", "--porcelain") != "" {
		t.Errorf("%q, %s", data, l.git("status", "--porcelain"))
	}
	if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/2"}); err != nil {
		t.Fatal(err)
	}
	if got := l.git("ls-files", "-s", "-v"); got != before {
		t.Errorf("the index is\n%s\nand was\n%s", got, before)
	}
}

// An interrupted rollback whose snapshot is gone cannot be finished: commands refuse, and doctor removes its note.
func TestRollbackWithLostSnapshotIsDropped(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" {
			return errors.New("on purpose")
		}
		return nil
	}})
	var said []string
	l.repo.opts.Warn = func(message string) { said = append(said, message) }
	l.writeFile("a", "1\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("a", "2\n")
	var halfWay *UnfinishedTransitionError
	if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); !errors.As(err, &halfWay) || halfWay.LeftSnapshot != l.sandbox.ID+"/2" {
		t.Fatal(err)
	}
	l.git("update-ref", "-d", snapshotRef(l.sandbox.ID, 1))
	if _, err := l.sandbox.Snapshot(t.Context()); !is[*LostRollbackError](err) {
		t.Fatal(err)
	}
	fixed, err := l.repo.Fix(t.Context(), l.sandbox.ID)
	if err != nil || len(fixed) != 1 || fixed[0].Code != "interrupted-rollback" {
		t.Fatal(fixed, err)
	}
	if !strings.Contains(strings.Join(said, "\n"), "cannot be finished") {
		t.Errorf("%q", said)
	}
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A rollback to a snapshot of another sandbox applies it to this sandbox's own branch. While such a rollback is
// unfinished, prune keeps the snapshot.
func TestRollbackToSnapshotOfOtherSandbox(t *testing.T) {
	t.Parallel()
	fail := true
	l := newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
		if at == "rollback/heads:before" && fail {
			return errors.New("on purpose")
		}
		return nil
	}})
	l.repo.opts.Warn = nil
	l.writeFile("theirs", "1\n")
	l.git("add", "theirs")
	l.git("commit", "-q", "-m", "theirs")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	head := l.git("rev-parse", "HEAD")
	inv, err := l.repo.Start(t.Context(), StartRequest{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.repo.Sandbox(inv.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); !is[*UnfinishedTransitionError](err) {
		t.Fatal(err)
	}
	if _, err := l.repo.Discard(t.Context(), l.sandbox.ID); err != nil {
		t.Fatal(err)
	}
	prune := func() string {
		t.Helper()
		pruned, err := l.repo.Prune(t.Context(), PruneRequest{Expire: "now"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pruned {
			if p.ID == l.sandbox.ID {
				return p.Action
			}
		}
		return ""
	}
	if got := prune(); got != PruneKeep {
		t.Errorf("prune action: %s", got)
	}
	fail = false
	if _, err := other.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(other.WorkDir(), "theirs"))
	if at, _ := l.repo.git.Tip(t.Context(), sandboxRef(other.ID)); err != nil || string(data) != "1\n" || at != head {
		t.Errorf("%q, %v; the branch is at %s, want %s", data, err, at, head)
	}
	if got := prune(); got != PruneRemove {
		t.Errorf("prune action: %s", got)
	}
}

// A rollback restores the staged commit of a submodule, and does not touch the files in it.
func TestRollbackKeepsFilesOfSubmodules(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{})
	l.git("init", "-q", "-b", "main", "sub")
	l.writeFile("sub/file", "theirs\n")
	l.git("-C", "sub", "add", "file")
	l.git("-C", "sub", "commit", "-q", "-m", "theirs")
	l.git("update-index", "--add", "--cacheinfo", "160000,"+l.git("-C", "sub", "rev-parse", "HEAD")+",sub")
	staged := l.git("ls-files", "-s")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.git("rm", "-q", "-f", "--cached", "sub")
	l.writeFile("sub/file", "changed\n")
	for n, want := range []string{staged, ""} {
		if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: snapshotName(l.sandbox.ID, n+1)}); err != nil {
			t.Fatal(err)
		}
		if got := l.git("ls-files", "-s"); got != want {
			t.Errorf("staged is %q; want %q", got, want)
		}
		data, err := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "sub", "file"))
		if err != nil || string(data) != "changed\n" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func snapshotName(id string, n int) string { return Snapshot{Invocation: id, Number: n}.name() }

// A rollback replaces a symlink where the snapshot has a directory. It changes neither files nor modes in the target
// outside the sandbox.
func TestRollbackFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	l := newTestRepo(t, Options{})
	outside := filepath.Join(t.TempDir(), "outside")
	for _, dir := range []string{filepath.Join(l.sandbox.WorkDir(), "dir", "deep"), filepath.Join(outside, "deep")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(outside, "deep"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(outside, "deep"), 0o755) })
	if err := errors.Join(os.RemoveAll(filepath.Join(l.sandbox.WorkDir(), "dir")), os.Symlink(outside, filepath.Join(l.sandbox.WorkDir(), "dir"))); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: snapshotName(l.sandbox.ID, n)}); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Lstat(filepath.Join(l.sandbox.WorkDir(), "dir"))
		if err != nil || fi.IsDir() != (n == 1) {
			t.Errorf("%v, %v", fi, err)
		}
		data, err := os.ReadFile(filepath.Join(outside, "deep", "file"))
		if err != nil || string(data) != filepath.Join(outside, "deep") {
			t.Errorf("%q, %v", data, err)
		}
		if fi, err := os.Stat(filepath.Join(outside, "deep")); err != nil || fi.Mode().Perm() != 0o555 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
}

// Commands in a sandbox without walls can write the repository's configuration. A rollback runs no filter from it; a
// file that needs such a filter stops the rollback before it has changed anything.
func TestRollbackRunsNoRepositoryFilter(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newTestRepo(t, Options{}, "filter.evil.smudge", "touch "+ran+"; cat", "core.autocrlf", "true")
	l.startWithoutWalls()
	l.writeFile("plain", "1\r\n")
	l.writeFile("a.txt", "1\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("plain", "2\r\n")
	l.writeFile("a.txt", "2\n")
	if _, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "plain"))
	if string(data) != "1\r\n" {
		t.Errorf("%q", data)
	}
	l.writeFile(".gitattributes", "*.txt filter=evil\n")
	if _, err := l.sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writeFile("a.txt", "3\n")
	for range 2 { // with .gitattributes in the tree, then only in the snapshot
		_, err := l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: l.sandbox.ID + "/3"})
		if !is[*UntrustedFilterError](err) || !strings.Contains(err.Error(), "a.txt: what filter.evil would run") {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(l.sandbox.WorkDir(), ".gitattributes")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("the filter ran")
	}
	if l.sandbox.hasRollbackJournal() || strings.Contains(l.listSnapshots(), "/4") {
		t.Error("the refused rollback left a note or a snapshot")
	}
}
