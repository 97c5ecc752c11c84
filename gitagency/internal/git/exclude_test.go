package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExcludeAddsItsLineOnceAndTakesItBackByteForByte(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"empty":                   {"", "/.agency/\n"},
		"a comment":               {"# hello\n", "# hello\n/.agency/\n"},
		"no newline at the end":   {"*.o", "*.o\n/.agency/\n"},
		"CRLF":                    {"*.o\r\n", "*.o\r\n/.agency/\n"},
		"CRLF, no newline at end": {"*.o\r\n*.a", "*.o\r\n*.a\n/.agency/\n"},
		"there already":           {"*.o\n/.agency/\n*.a\n", ""},
		"there, last, no newline": {"*.o\n/.agency/", ""},
		"there, with CRLF":        {"/.agency/\r\n*.o\r\n", ""},
		"there only in part":      {"x/.agency/\n/.agency/x\n/.agency\n#/.agency/\n", "x/.agency/\n/.agency/x\n/.agency\n#/.agency/\n/.agency/\n"},
		"not UTF-8":               {"\xff\n", "\xff\n/.agency/\n"},
		"a byte order mark":       {"\ufeff*.o\n", "\ufeff*.o\n/.agency/\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			path := filepath.Join(l.dir, ".git/info/exclude")
			l.must(os.MkdirAll(filepath.Dir(path), 0o755))
			l.must(os.WriteFile(path, []byte(c.before), 0o644))
			l.must(os.Chmod(path, 0o664))
			before := states(t, filepath.Dir(path))
			undo, err := repo.AddExclude("/.agency/")
			l.must(err)
			if c.after == "" {
				if undo != nil {
					t.Error("there is something to undo")
				}
				requireSame(t, "afterwards", states(t, filepath.Dir(path)), before)
				return
			}
			if got, _ := os.ReadFile(path); string(got) != c.after {
				t.Errorf("got %q, want %q", got, c.after)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o664 {
				t.Errorf("its mode is %v, %v", fi.Mode(), err)
			}
			l.write(".agency/x", "x\n")
			if status := l.git("status", "--porcelain"); status != "" {
				t.Errorf("git shows %q", status)
			}
			if again, err := repo.AddExclude("/.agency/"); again != nil || err != nil {
				t.Errorf("a second time: %v", err)
			}
			l.must(undo())
			requireSame(t, "after the undo", states(t, filepath.Dir(path)), before)
			l.must(undo()) // twice is fine
			requireSame(t, "after two undos", states(t, filepath.Dir(path)), before)
		})
	}
}

func TestExcludeMakesTheFileAndTakesItAway(t *testing.T) {
	t.Parallel()
	for _, remove := range []string{".git/info/exclude", ".git/info"} {
		l := newLab(t)
		repo := l.open()
		l.must(os.RemoveAll(filepath.Join(l.dir, remove)))
		path := filepath.Join(l.dir, ".git/info/exclude")
		undo, err := repo.AddExclude("/.agency/")
		l.must(err)
		if got, _ := os.ReadFile(path); string(got) != "/.agency/\n" {
			t.Errorf("without %s: %q", remove, got)
		}
		l.must(undo())
		if exists(path) {
			t.Errorf("without %s: it is still there", remove)
		}
	}
}

func TestExcludeWritesThroughASymlink(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	link, target := filepath.Join(l.dir, ".git/info/exclude"), filepath.Join(tempDir(t), "dotfiles/exclude")
	l.put(filepath.Dir(target), "exclude", "mine\n")
	l.must(os.RemoveAll(link))
	l.must(os.Symlink(target, link))
	undo, err := repo.AddExclude("/.agency/")
	l.must(err)
	if got, _ := os.ReadFile(target); string(got) != "mine\n/.agency/\n" {
		t.Errorf("got %q", got)
	}
	l.must(undo())
	if got, _ := os.ReadFile(target); string(got) != "mine\n" {
		t.Errorf("after the undo: %q", got)
	}
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

func TestExcludeDoesNotTakeBackWhatSomebodyChangedSince(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]string{"added": "# mine\n/.agency/\nmore\n", "removed": "# mine\n", "emptied": "", "same but for a byte": "# mine\n/.agency/ \n"} {
		l := newLab(t)
		repo := l.open()
		path := filepath.Join(l.dir, ".git/info/exclude")
		l.put(l.dir, ".git/info/exclude", "# mine\n")
		undo, err := repo.AddExclude("/.agency/")
		l.must(err)
		l.must(os.WriteFile(path, []byte(now), 0o644))
		l.must(undo())
		if got, _ := os.ReadFile(path); string(got) != now {
			t.Errorf("%s: %q", name, got)
		}
	}
	l := newLab(t)
	undo, err := l.open().AddExclude("/.agency/")
	l.must(err)
	l.must(os.Remove(filepath.Join(l.dir, ".git/info/exclude")))
	if err := undo(); err != nil || exists(filepath.Join(l.dir, ".git/info/exclude")) {
		t.Errorf("deleted meanwhile: %v", err)
	}
}

func TestExcludeServesEveryWorktree(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	linked := filepath.Join(tempDir(t), "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	if _, err := l.openIn(linked).AddExclude("/.agency/"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{l.dir, linked} {
		l.put(dir, ".agency/MARKER", "x\n")
		l.put(dir, "deep/.agency/x", "x\n")
		if status := l.in(dir, "status", "--porcelain", "-uall"); strings.TrimSpace(status) != "?? deep/.agency/x" {
			t.Errorf("%s: %q", dir, status)
		}
	}
}

func TestExcludeLeavesNoFileBehindWhenItFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	path := filepath.Join(l.dir, ".git/info/exclude")
	l.must(os.RemoveAll(path))
	l.put(path, "is/a/directory", "x\n")
	before := states(t, filepath.Dir(path))
	if undo, err := repo.AddExclude("/.agency/"); err == nil || undo != nil {
		t.Errorf("got %v", err)
	}
	requireSame(t, "afterwards", states(t, filepath.Dir(path)), before)
}

// Somebody keeps the file elsewhere, and it is not there yet (or its disk is not mounted).
func TestExcludeKeepsASymlinkThatLeadsNowhereYet(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	link, target := filepath.Join(repo.CommonDir, "info", "exclude"), filepath.Join(t.TempDir(), "dotfiles", "exclude")
	l.must(os.RemoveAll(link))
	l.must(os.Symlink(target, link))
	undo, err := repo.AddExclude("/.agency/")
	if err != nil {
		return // to refuse is safe
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("the link was replaced: %q, %v", got, err)
	}
	if undo != nil {
		l.must(undo())
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("after the undo the link is gone: %q, %v", got, err)
	}
}

func TestUnexcludeTakesALineBackWithoutHavingBeenThere(t *testing.T) {
	t.Parallel()
	const line = "/.agency/"
	for name, c := range map[string]struct {
		before string // "-" for no file
		state  string
	}{
		"no file":           {"-", ExcludeAbsent},
		"empty":             {"", ExcludeFinalNewline},
		"a line":            {"*.o\n", ExcludeFinalNewline},
		"a line, not ended": {"*.o", ExcludeNoFinalNewline},
		"there already":     {"*.o\n/.agency/\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			dir := filepath.Join(repo.CommonDir, "info")
			l.must(os.RemoveAll(dir))
			l.must(os.Mkdir(dir, 0o755))
			if c.before != "-" {
				l.put(dir, "exclude", c.before)
			}
			before := states(t, dir)
			state, err := repo.ExcludeState(line)
			if l.must(err); state != c.state {
				t.Errorf("it is %q", state)
			}
			_, err = repo.AddExclude(line)
			l.must(err)
			l.must(repo.RemoveExclude(line, state))
			requireSame(t, "afterwards", states(t, dir), before)
			l.must(repo.RemoveExclude(line, state)) // twice is fine
			requireSame(t, "after twice", states(t, dir), before)
		})
	}
}

func TestUnexcludeLeavesWhatSomebodyAddedSince(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	dir := filepath.Join(repo.CommonDir, "info")
	for _, now := range []string{"/.agency/\n*.a\n", "x/.agency/\n", "/.agency/", ""} {
		for _, before := range []string{ExcludeAbsent, ExcludeFinalNewline, ExcludeNoFinalNewline, "", "nonsense"} {
			l.put(dir, "exclude", now)
			l.must(repo.RemoveExclude("/.agency/", before))
			if got, err := os.ReadFile(filepath.Join(dir, "exclude")); string(got) != now || err != nil {
				t.Errorf("%q, which was %q, is %q now, %v", now, before, got, err)
			}
		}
	}
}
