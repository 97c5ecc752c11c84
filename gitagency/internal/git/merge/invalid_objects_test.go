package merge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// A cancelled context ends a read of a loose object that is a FIFO, on which git blocks.
func TestMergerStopsReadingFIFOObjectOnCancel(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	l.Write("a.txt", "new\n")
	tip := l.Commit("new")
	path := filepath.Join(l.Root, ".git/objects", tip[:2], tip[2:])
	l.Must(os.Remove(path))
	l.Must(syscall.Mkfifo(path, 0o644))
	m := openMerger(l)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // git blocks on the FIFO by then, which has no writer
	defer cancel()
	m.StartCatFile(ctx)
	m.Prefetch(ctx, base, tip, "")
	if _, err := m.CommitsBetween(ctx, base, tip); err == nil {
		t.Error("a FIFO was read as a commit")
	}
}

// FsckRange refuses a blob whose loose object is a FIFO, without reading it.
func TestFsckRangeRefusesFIFOAsBlob(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	l.Write("a.txt", "new\n")
	tip, oid := l.Commit("new"), l.Git("rev-parse", "HEAD:a.txt")
	path := filepath.Join(l.Root, ".git/objects", oid[:2], oid[2:])
	l.Must(os.Remove(path))
	l.Must(syscall.Mkfifo(path, 0o644))
	var invalid *fsck.Error
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, &invalid) || invalid.Path != "a.txt" {
		t.Errorf("%v", err)
	}
}

// Inspect uses the branch when the commit in HEAD does not exist.
func TestInspectUsesBranchIfHeadCommitIsMissing(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	at := l.Git("rev-parse", w.Branch)
	l.WriteIn(repo.AdminDir(w.Name), "HEAD", "1234567890123456789012345678901234567890\n")
	s := repotest.SpecOf(l, w)
	got, err := openMerger(l).Inspect(t.Context(), s)
	l.Must(err)
	if got.Head != at || len(got.Uncommitted) > 0 {
		t.Errorf("%+v", got)
	}
}
