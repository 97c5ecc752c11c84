package git

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

func TestWriteIndexReplacesIndexUnderLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l)
	l.WriteIn(w.Tree, "staged", "s\n")
	l.GitIn(w.Tree, "add", "staged")
	path := filepath.Join(repo.AdminDir(w.Name), "index")
	data, err := os.ReadFile(path)
	l.Must(err)
	x, err := index.Read(data, object.SHA1)
	l.Must(err)
	l.GitIn(w.Tree, "reset", "-q", "--hard")
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	l.Must(repo.WriteIndex(w.Name, x, at))
	fi, err := os.Stat(path)
	l.Must(err)
	if gittest.Exists(path+".lock") || !fi.ModTime().Equal(at) {
		t.Errorf("mtime is %s, want %s", fi.ModTime(), at)
	}
	if got := l.GitIn(w.Tree, "ls-files", "staged"); got != "staged" {
		t.Errorf("staged files are %q", got)
	}
	before := gittest.DiskState(t, repo.AdminDir(w.Name))
	l.Must(os.WriteFile(path+".lock", nil, 0o644))
	var locked *LockedError
	if err := repo.WriteIndex(w.Name, x, at); !errors.As(err, &locked) || locked.Path != path+".lock" {
		t.Errorf("with a lock file: %v", err)
	}
	l.Must(os.Remove(path + ".lock"))
	for _, name := range []string{"", ".", "..", "../..", "a/b", "none"} {
		if err := repo.WriteIndex(name, x, at); err == nil {
			t.Errorf("index of %q was written", name)
		}
	}
	gittest.RequireSame(t, "the entry", gittest.DiskState(t, repo.AdminDir(w.Name)), before)
}

// WriteIndex must take over the lock file of an earlier WriteIndex that was killed at any step, which it recognizes
// as a hard link to the draft. It must leave the lock file of a git alone.
func TestWriteIndexTakesOverLockOfKilledWriter(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := AddSandbox(l)
	path := filepath.Join(repo.AdminDir(w.Name), "index")
	data, err := os.ReadFile(path)
	l.Must(err)
	x, err := index.Read(data, object.SHA1)
	l.Must(err)
	before := gittest.DiskState(t, repo.AdminDir(w.Name))
	for name, until := range map[string]func(d *IndexDraft) error{
		"begun":     func(*IndexDraft) error { return nil },
		"written":   func(d *IndexDraft) error { return d.Write(x, time.Now()) },
		"locked":    func(d *IndexDraft) error { return d.Lock() },
		"published": func(d *IndexDraft) error { return errors.Join(d.Lock(), os.Rename(path+".lock", path)) },
	} {
		d, err := repo.NewIndexDraft(w.Name)
		l.Must(err)
		if name != "written" { // the draft that replaces the index must hold one
			l.Must(d.Write(x, time.Now().Add(-time.Hour)))
		}
		l.Must(until(d))
		l.Must(d.File.Close()) // the only effect of a kill
		l.Must(repo.WriteIndex(w.Name, x, time.Now().Add(-time.Hour)))
		if gittest.Exists(path+".lock") || gittest.Exists(path+".agency") {
			t.Errorf("%s: a lock file or draft is left", name)
		}
		l.GitIn(w.Tree, "status")
	}
	for _, withDraft := range []bool{false, true} {
		l.Must(os.WriteFile(path+".lock", nil, 0o644))
		if withDraft {
			l.Must(os.WriteFile(path+".agency", nil, 0o644)) // left by a killed writer before a git took the lock
		}
		var locked *LockedError
		if err := repo.WriteIndex(w.Name, x, time.Now()); !errors.As(err, &locked) || !gittest.Exists(path+".lock") {
			t.Errorf("with the lock file of a git: %v", err)
		}
		l.Must(os.Remove(path + ".lock"))
	}
	after := gittest.DiskState(t, repo.AdminDir(w.Name))
	if len(after) != len(before) {
		t.Errorf("the entry has %d files, and had %d", len(after), len(before))
	}
}
