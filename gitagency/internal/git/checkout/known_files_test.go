package checkout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// storedMemory is a Memory in memory.
type storedMemory struct {
	stored []byte
	saves  int
}

// keepAll stores files of any age.
func (m *storedMemory) keepAll() Memory { return m.keep(-time.Hour) }

func (m *storedMemory) keep(minAge time.Duration) Memory {
	return Memory{
		Load:   func() []byte { return m.stored },
		Save:   func(data []byte) error { m.stored, m.saves = data, m.saves+1; return nil },
		MinAge: minAge,
	}
}

// TestFillReadsKnownFilesOnce checks that the content of a known file counts as long as its stat data is the same, and not longer.
func TestFillReadsKnownFilesOnce(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	commit := l.Git("rev-parse", "HEAD")
	l.Write("plain", "PLAIN\n") // by its stat data, the content of the commit
	var st unix.Stat_t
	l.Must(unix.Lstat(filepath.Join(l.Root, "plain"), &st))
	x := index.File{Format: object.SHA1}
	x.Append(index.EncodeStat(&st, object.ModeFile), object.HashObject(object.SHA1, "blob", []byte("plain\n")), []byte("plain"))
	known := x.Encode()
	repo := repotest.OpenRepo(l)

	fill := func(name string, stored []byte) (content string) {
		w := register(l, repo, name, commit)
		l.Must(Fill(t.Context(), repo, requestFor(l, w, commit, (&storedMemory{stored: stored}).keepAll())))
		data, err := os.ReadFile(filepath.Join(w.Tree, "plain"))
		l.Must(err)
		return string(data)
	}
	if got := fill("20260101000000-aaaa", known); got != "PLAIN\n" {
		t.Errorf("a known file was hashed: %q", got)
	}
	if got := fill("20260101000000-bbbb", known[:len(known)-1]); got != "plain\n" {
		t.Errorf("with damaged data, the file was not hashed: %q", got)
	}
	l.Must(os.Chmod(filepath.Join(l.Root, "plain"), 0o600))
	if got := fill("20260101000000-cccc", known); got != "plain\n" {
		t.Errorf("a file with another ctime was not hashed: %q", got)
	}
}

// TestFillSavesWhatIsWorthIt checks when known files are stored.
func TestFillSavesWhatIsWorthIt(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	for i := range 100 {
		l.Write(fmt.Sprintf("many/%d", i), "content\n")
	}
	commit := l.Commit("many files")
	repo := repotest.OpenRepo(l)
	fills := 0
	fill := func(m Memory) error {
		fills++
		w := register(l, repo, fmt.Sprintf("20260101000000-%04x", fills), commit)
		return Fill(t.Context(), repo, requestFor(l, w, commit, m))
	}
	memory := &storedMemory{}
	l.Must(fill(memory.keep(time.Hour)))
	if memory.saves != 0 {
		t.Error("young files were stored")
	}
	for _, step := range []struct {
		touch int // files
		saves int // so far
	}{{0, 1}, {0, 1}, {1, 1}, {10, 2}, {0, 2}} {
		for i := range step.touch {
			l.Must(os.Chmod(filepath.Join(l.Root, fmt.Sprintf("many/%d", i)), 0o600))
			l.Must(os.Chmod(filepath.Join(l.Root, fmt.Sprintf("many/%d", i)), 0o644))
		}
		l.Must(fill(memory.keepAll()))
		if memory.saves != step.saves {
			t.Errorf("after %d files got another ctime: stored %d times, want %d", step.touch, memory.saves, step.saves)
		}
	}
	full := memory.keepAll()
	full.Load, full.Save = func() []byte { return nil }, func([]byte) error { return unix.ENOSPC }
	if err := fill(full); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
}
