package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestAddExcludeIsUndoneByteForByte(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"empty":                     {"", "/.agency/\n"},
		"a comment":                 {"# hello\n", "# hello\n/.agency/\n"},
		"no newline at the end":     {"*.o", "*.o\n/.agency/\n"},
		"CRLF":                      {"*.o\r\n", "*.o\r\n/.agency/\n"},
		"CRLF, no newline at end":   {"*.o\r\n*.a", "*.o\r\n*.a\n/.agency/\n"},
		"present":                   {"*.o\n/.agency/\n*.a\n", ""},
		"present, last, no newline": {"*.o\n/.agency/", ""},
		"present, with CRLF":        {"/.agency/\r\n*.o\r\n", ""},
		"part of other lines":       {"x/.agency/\n/.agency/x\n/.agency\n#/.agency/\n", "x/.agency/\n/.agency/x\n/.agency\n#/.agency/\n/.agency/\n"},
		"not UTF-8":                 {"\xff\n", "\xff\n/.agency/\n"},
		"a byte order mark":         {"\ufeff*.o\n", "\ufeff*.o\n/.agency/\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			path := filepath.Join(l.Root, ".git/info/exclude")
			l.Must(os.MkdirAll(filepath.Dir(path), 0o755))
			l.Must(os.WriteFile(path, []byte(c.before), 0o644))
			l.Must(os.Chmod(path, 0o664))
			before := gittest.DiskState(t, filepath.Dir(path))
			undo, err := repo.AddExclude("/.agency/")
			l.Must(err)
			if c.after == "" {
				if undo != nil {
					t.Error("got an undo although nothing was added")
				}
				gittest.RequireSame(t, "afterwards", gittest.DiskState(t, filepath.Dir(path)), before)
				return
			}
			if got, _ := os.ReadFile(path); string(got) != c.after {
				t.Errorf("got %q, want %q", got, c.after)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o664 {
				t.Errorf("mode is %v, %v", fi.Mode(), err)
			}
			l.Write(".agency/x", "x\n")
			if status := l.Git("status", "--porcelain"); status != "" {
				t.Errorf("git status shows %q", status)
			}
			if again, err := repo.AddExclude("/.agency/"); again != nil || err != nil {
				t.Errorf("second AddExclude: %v", err)
			}
			l.Must(undo())
			gittest.RequireSame(t, "after the undo", gittest.DiskState(t, filepath.Dir(path)), before)
			l.Must(undo()) // a second undo does nothing
			gittest.RequireSame(t, "after two undos", gittest.DiskState(t, filepath.Dir(path)), before)
		})
	}
}

func TestAddExcludeCreatesFileAndUndoRemovesIt(t *testing.T) {
	t.Parallel()
	for _, remove := range []string{".git/info/exclude", ".git/info"} {
		l := gittest.New(t)
		repo := OpenRepo(l)
		l.Must(os.RemoveAll(filepath.Join(l.Root, remove)))
		path := filepath.Join(l.Root, ".git/info/exclude")
		undo, err := repo.AddExclude("/.agency/")
		l.Must(err)
		if got, _ := os.ReadFile(path); string(got) != "/.agency/\n" {
			t.Errorf("without %s: %q", remove, got)
		}
		l.Must(undo())
		if gittest.Exists(path) {
			t.Errorf("without %s: the file still exists", remove)
		}
	}
}

func TestAddExcludeWritesThroughSymlink(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	link, target := filepath.Join(l.Root, ".git/info/exclude"), filepath.Join(gittest.TempDir(t), "dotfiles/exclude")
	l.WriteIn(filepath.Dir(target), "exclude", "mine\n")
	l.Must(os.RemoveAll(link))
	l.Must(os.Symlink(target, link))
	undo, err := repo.AddExclude("/.agency/")
	l.Must(err)
	if got, _ := os.ReadFile(target); string(got) != "mine\n/.agency/\n" {
		t.Errorf("got %q", got)
	}
	l.Must(undo())
	if got, _ := os.ReadFile(target); string(got) != "mine\n" {
		t.Errorf("after the undo: %q", got)
	}
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("target of the link is %q, %v", to, err)
	}
}

func TestAddExcludeUndoKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]string{"added": "# mine\n/.agency/\nmore\n", "removed": "# mine\n", "emptied": "", "one byte changed": "# mine\n/.agency/ \n"} {
		l := gittest.New(t)
		repo := OpenRepo(l)
		path := filepath.Join(l.Root, ".git/info/exclude")
		l.WriteIn(l.Root, ".git/info/exclude", "# mine\n")
		undo, err := repo.AddExclude("/.agency/")
		l.Must(err)
		l.Must(os.WriteFile(path, []byte(now), 0o644))
		l.Must(undo())
		if got, _ := os.ReadFile(path); string(got) != now {
			t.Errorf("%s: %q", name, got)
		}
	}
	l := gittest.New(t)
	undo, err := OpenRepo(l).AddExclude("/.agency/")
	l.Must(err)
	l.Must(os.Remove(filepath.Join(l.Root, ".git/info/exclude")))
	if err := undo(); err != nil || gittest.Exists(filepath.Join(l.Root, ".git/info/exclude")) {
		t.Errorf("undo after the file was deleted: %v", err)
	}
}

func TestAddExcludeAppliesToEveryWorktree(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	if _, err := OpenRepoIn(l, linked).AddExclude("/.agency/"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{l.Root, linked} {
		l.WriteIn(dir, ".agency/MARKER", "x\n")
		l.WriteIn(dir, "deep/.agency/x", "x\n")
		if status := l.GitIn(dir, "status", "--porcelain", "-uall"); strings.TrimSpace(status) != "?? deep/.agency/x" {
			t.Errorf("%s: %q", dir, status)
		}
	}
}

func TestFailedAddExcludeLeavesNoFile(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	path := filepath.Join(l.Root, ".git/info/exclude")
	l.Must(os.RemoveAll(path))
	l.WriteIn(path, "is/a/directory", "x\n")
	before := gittest.DiskState(t, filepath.Dir(path))
	if undo, err := repo.AddExclude("/.agency/"); err == nil || undo != nil {
		t.Errorf("got %v", err)
	}
	gittest.RequireSame(t, "afterwards", gittest.DiskState(t, filepath.Dir(path)), before)
}

// AddExclude must keep a symlink whose target does not exist: the target may be on a disk that is not mounted.
func TestAddExcludeKeepsDanglingSymlink(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	link, target := filepath.Join(repo.CommonDir, "info", "exclude"), filepath.Join(t.TempDir(), "dotfiles", "exclude")
	l.Must(os.RemoveAll(link))
	l.Must(os.Symlink(target, link))
	undo, err := repo.AddExclude("/.agency/")
	if err != nil {
		return // an error is safe too
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("the link was replaced: %q, %v", got, err)
	}
	if undo != nil {
		l.Must(undo())
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("after the undo the link is %q, %v", got, err)
	}
}

func TestRemoveExcludeRestoresRecordedState(t *testing.T) {
	t.Parallel()
	const line = "/.agency/"
	for name, c := range map[string]struct {
		before string // content of the file; "-": no file
		state  string
	}{
		"no file":          {"-", ExcludeAbsent},
		"empty":            {"", ExcludeFinalNewline},
		"a line":           {"*.o\n", ExcludeFinalNewline},
		"no final newline": {"*.o", ExcludeNoFinalNewline},
		"present":          {"*.o\n/.agency/\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := OpenRepo(l)
			dir := filepath.Join(repo.CommonDir, "info")
			l.Must(os.RemoveAll(dir))
			l.Must(os.Mkdir(dir, 0o755))
			if c.before != "-" {
				l.WriteIn(dir, "exclude", c.before)
			}
			before := gittest.DiskState(t, dir)
			state, err := repo.ExcludeState(line)
			if l.Must(err); state != c.state {
				t.Errorf("state is %q", state)
			}
			_, err = repo.AddExclude(line)
			l.Must(err)
			l.Must(repo.RemoveExclude(line, state))
			gittest.RequireSame(t, "afterwards", gittest.DiskState(t, dir), before)
			l.Must(repo.RemoveExclude(line, state)) // a second removal does nothing
			gittest.RequireSame(t, "after two removals", gittest.DiskState(t, dir), before)
		})
	}
}

func TestRemoveExcludeKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	dir := filepath.Join(repo.CommonDir, "info")
	for _, now := range []string{"/.agency/\n*.a\n", "x/.agency/\n", "/.agency/", ""} {
		for _, before := range []string{ExcludeAbsent, ExcludeFinalNewline, ExcludeNoFinalNewline, "", "nonsense"} {
			l.WriteIn(dir, "exclude", now)
			l.Must(repo.RemoveExclude("/.agency/", before))
			if got, err := os.ReadFile(filepath.Join(dir, "exclude")); string(got) != now || err != nil {
				t.Errorf("%q with recorded state %q became %q, %v", now, before, got, err)
			}
		}
	}
}
