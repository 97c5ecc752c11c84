package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
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
			l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
				if at == c.point {
					cancel()
				}
				return nil
			}})
			l.WriteFile("a", "1\n")
			if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.WriteFile("a", "2\n")
			l.WriteFile("later", "2\n")
			_, err := l.Sandbox.Rollback(ctx, sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"})
			later, _ := filepath.Glob(filepath.Join(l.Sandbox.WorkDir(), "later"))
			switch {
			case c.begun && (err != nil || len(later) > 0):
				t.Errorf("the rollback was not finished: %v", err)
			case !c.begun && (!errors.Is(err, context.Canceled) || len(later) == 0 || strings.Contains(listSnapshots(l), "/2")):
				t.Errorf("the rollback was not undone: %v, %s", err, listSnapshots(l))
			}
			if l.Sandbox.HasRollbackJournal() {
				t.Error("the note of the rollback is left")
			}
			for _, left := range []string{"index.lock", "index.agency", "HEAD.lock", "HEAD.agency"} {
				if _, err := os.Lstat(filepath.Join(l.Repo.Git.AdminDir(l.Sandbox.ID), left)); err == nil {
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
		do    func(l *sandboxtest.Fixture)
		stops bool
	}{
		{"changed file", func(l *sandboxtest.Fixture) { l.WriteFile("a", "3, meanwhile\n") }, true},
		{"new file at a path to restore", func(l *sandboxtest.Fixture) { l.WriteFile("gone", "meanwhile\n") }, true},
		{"staged file", func(l *sandboxtest.Fixture) { l.WriteFile("new", "x\n"); l.Git("add", "new") }, true},
		{"commit", func(l *sandboxtest.Fixture) { l.Git("commit", "-q", "--allow-empty", "-m", "meanwhile") }, true},
		{"git status", func(l *sandboxtest.Fixture) { l.Git("status") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var l *sandboxtest.Fixture
			l = sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
				if at == "rollback/ref:after" {
					c.do(l)
				}
				return nil
			}})
			l.WriteFile("a", "1\n")
			l.WriteFile("gone", "1\n")
			if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.WriteFile("a", "2\n")
			if err := os.Remove(filepath.Join(l.Sandbox.WorkDir(), "gone")); err != nil {
				t.Fatal(err)
			}
			_, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"})
			if (err != nil) != c.stops || fault.Is[*fault.UnfinishedTransitionError](err) {
				t.Fatalf("%v", err)
			}
			data, _ := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "a"))
			if c.stops && string(data) == "1\n" {
				t.Error("the rollback overwrote the change")
			}
			if l.Sandbox.HasRollbackJournal() {
				t.Error("the note of the rollback is left")
			}
		})
	}
}

// A rollback changes files in directories without write permission, as Go's module cache has them, and restores the
// mode of the directory.
func TestRollbackInReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	dir := filepath.Join(l.Sandbox.WorkDir(), "closed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("closed/a", "1\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("closed/a", "2\n")
	l.WriteFile("closed/later", "2\n")
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); err != nil {
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
	l := sandboxtest.New(t, core.Options{})
	if err := os.Mkdir(filepath.Join(l.Sandbox.WorkDir(), "far"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("far/away", "1\n")
	l.WriteFile("near", "1\n")
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "both")
	l.Git("sparse-checkout", "set", "--no-cone", "/near")
	l.Git("update-index", "--assume-unchanged", "near")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("near", "2\n")
	blob := l.Git("hash-object", "-w", "near")
	l.Git("update-index", "--cacheinfo", "100644,"+blob+",far/away")
	l.Git("update-index", "--skip-worktree", "far/away")
	before := l.Git("ls-files", "-s", "-v")
	if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	if got := l.Git("ls-files", "-v"); got != "S far/away\nh near" {
		t.Errorf("%s", got)
	}
	if _, err := os.Lstat(filepath.Join(l.Sandbox.WorkDir(), "far", "away")); err == nil {
		t.Error("the skip-worktree file was checked out")
	}
	data, _ := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "near"))
	if string(data) != "1\n" || l.Git("status", "--porcelain") != "" {
		t.Errorf("%q, %s", data, l.Git("status", "--porcelain"))
	}
	if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/2"}); err != nil {
		t.Fatal(err)
	}
	if got := l.Git("ls-files", "-s", "-v"); got != before {
		t.Errorf("the index is\n%s\nand was\n%s", got, before)
	}
}

// A rollback restores the staged commit of a submodule, and does not touch the files in it.
func TestRollbackKeepsFilesOfSubmodules(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.Git("init", "-q", "-b", "main", "sub")
	l.WriteFile("sub/file", "theirs\n")
	l.Git("-C", "sub", "add", "file")
	l.Git("-C", "sub", "commit", "-q", "-m", "theirs")
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("-C", "sub", "rev-parse", "HEAD")+",sub")
	staged := l.Git("ls-files", "-s")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Git("rm", "-q", "-f", "--cached", "sub")
	l.WriteFile("sub/file", "changed\n")
	for n, want := range []string{staged, ""} {
		if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: snapshotName(l.Sandbox.ID, n+1)}); err != nil {
			t.Fatal(err)
		}
		if got := l.Git("ls-files", "-s"); got != want {
			t.Errorf("staged is %q; want %q", got, want)
		}
		data, err := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "sub", "file"))
		if err != nil || string(data) != "changed\n" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func snapshotName(id string, n int) string {
	return snapshots.Snapshot{Invocation: id, Number: n}.Name()
}

// A rollback replaces a symlink where the snapshot has a directory. It changes neither files nor modes in the target
// outside the sandbox.
func TestRollbackFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	outside := filepath.Join(t.TempDir(), "outside")
	for _, dir := range []string{filepath.Join(l.Sandbox.WorkDir(), "dir", "deep"), filepath.Join(outside, "deep")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(outside, "deep"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(outside, "deep"), 0o755) })
	if err := errors.Join(os.RemoveAll(filepath.Join(l.Sandbox.WorkDir(), "dir")), os.Symlink(outside, filepath.Join(l.Sandbox.WorkDir(), "dir"))); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: snapshotName(l.Sandbox.ID, n)}); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Lstat(filepath.Join(l.Sandbox.WorkDir(), "dir"))
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
	l := sandboxtest.New(t, core.Options{}, "filter.evil.smudge", "touch "+ran+"; cat", "core.autocrlf", "true")
	l.StartWithoutWalls()
	l.WriteFile("plain", "1\r\n")
	l.WriteFile("a.txt", "1\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("plain", "2\r\n")
	l.WriteFile("a.txt", "2\n")
	if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/1"}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "plain"))
	if string(data) != "1\r\n" {
		t.Errorf("%q", data)
	}
	l.WriteFile(".gitattributes", "*.txt filter=evil\n")
	if _, err := l.Sandbox.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.WriteFile("a.txt", "3\n")
	for range 2 { // with .gitattributes in the tree, then only in the snapshot
		_, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: l.Sandbox.ID + "/3"})
		if !fault.Is[*fault.UntrustedFilterError](err) || !strings.Contains(err.Error(), "a.txt: the command of filter.evil is configured") {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(l.Sandbox.WorkDir(), ".gitattributes")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("the filter ran")
	}
	if l.Sandbox.HasRollbackJournal() || strings.Contains(listSnapshots(l), "/4") {
		t.Error("the refused rollback left a note or a snapshot")
	}
}
