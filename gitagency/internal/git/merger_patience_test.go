package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A git that waits for a pipe in the place of an object does not keep those waiting who were told to end.
func TestNobodyWaitsForAPipeLongerThanForHimself(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	l.write("a.txt", "new\n")
	tip := l.commit("new")
	path := filepath.Join(l.dir, ".git/objects", tip[:2], tip[2:])
	l.must(os.Remove(path))
	l.must(syscall.Mkfifo(path, 0o644))
	m := l.merger()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // by then git waits for whoever writes to it: nobody
	defer cancel()
	m.StartCatFile(ctx)
	m.Prefetch(ctx, base, tip, "")
	if _, err := m.CommitsBetween(ctx, base, tip); err == nil {
		t.Error("a pipe is a commit")
	}
}

// A pipe in the place of a file is not even asked for.
func TestAPipeInThePlaceOfAFileIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	l.write("a.txt", "new\n")
	tip, oid := l.commit("new"), l.git("rev-parse", "HEAD:a.txt")
	path := filepath.Join(l.dir, ".git/objects", oid[:2], oid[2:])
	l.must(os.Remove(path))
	l.must(syscall.Mkfifo(path, 0o644))
	var unsound *FsckError
	if err := l.merger().FsckRange(t.Context(), base, tip); !errors.As(err, &unsound) || unsound.Path != "a.txt" {
		t.Errorf("%v", err)
	}
}

// What HEAD names need not be there; what the branch holds is.
func TestHeadThatNamesNothingIsLookedAtAsTheBranch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	at := l.git("rev-parse", w.Branch)
	l.put(repo.AdminDir(w.Name), "HEAD", "1234567890123456789012345678901234567890\n")
	s := l.subject(w)
	got, err := l.merger().Inspect(t.Context(), s)
	l.must(err)
	if got.Head != at || len(got.Uncommitted) > 0 {
		t.Errorf("%+v", got)
	}
}
