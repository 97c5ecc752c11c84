package copies

import (
	"os"
	"path/filepath"
	"testing"
)

// write makes copies of files, given as name and text in turn.
func write(t *testing.T, s Set, words ...string) error {
	t.Helper()
	var files []File
	for i := 0; i < len(words); i += 2 {
		files = append(files, File{Name: words[i], Original: words[i+1], Text: words[i+1]})
	}
	return s.Write(files)
}

func newSet(t *testing.T, keepRemoved bool) Set {
	t.Helper()
	s := Set{Dir: filepath.Join(t.TempDir(), "dir"), Record: filepath.Join(t.TempDir(), "record"), KeepRemoved: keepRemoved}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s Set) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir, name))
	if err != nil {
		return "error"
	}
	return string(data)
}

func TestCopyFollowsOriginalUntilChanged(t *testing.T) {
	t.Parallel()
	for _, keepRemoved := range []bool{false, true} {
		s := newSet(t, keepRemoved)
		for _, step := range []struct {
			change func() error
			words  []string
			want   string // contents of .a and .config/b
		}{
			{nil, []string{".a", "1", ".config/b", "1"}, "1 1"},
			{nil, []string{".a", "2", ".config/b", "2"}, "2 2"},
			{func() error { return os.WriteFile(s.Dir+"/.a", []byte("own"), 0o600) }, []string{".a", "3", ".config/b", "3"}, "own 3"},
			{nil, []string{".a", "4"}, "own error"},
			{nil, []string{".a", "5", ".config/b", "5"}, "own 5"},
			{func() error { return os.Rename(s.Dir+"/.a", s.Dir+"/.config/b") }, []string{".config/b", "6"}, "error own"},
		} {
			if step.change != nil {
				if err := step.change(); err != nil {
					t.Fatal(err)
				}
			}
			if err := write(t, s, step.words...); err != nil {
				t.Fatal(err)
			}
			if got := s.read(t, ".a") + " " + s.read(t, ".config/b"); got != step.want {
				t.Errorf("keep removed %v: %q: got %q, want %q", keepRemoved, step.words, got, step.want)
			}
		}
	}
}

// The directory of a private home has an empty file on which a granted one was mounted. In the upper directory of an overlay,
// an empty file is the sandbox's own.
func TestCopyReplacesMountPoint(t *testing.T) {
	t.Parallel()
	for keepRemoved, want := range map[bool]string{true: "1", false: ""} {
		s := newSet(t, keepRemoved)
		if err := os.WriteFile(s.Dir+"/.a", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write(t, s, ".a", "1"); err != nil {
			t.Fatal(err)
		}
		if got := s.read(t, ".a"); got != want {
			t.Errorf("keep removed %v: got %q, want %q", keepRemoved, got, want)
		}
		if err := os.WriteFile(s.Dir+"/.a", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write(t, s, ".a", "2"); err != nil {
			t.Fatal(err)
		}
		if got := s.read(t, ".a"); got != "" {
			t.Errorf("keep removed %v: a copy that the sandbox emptied became %q", keepRemoved, got)
		}
	}
}

func TestRemovedCopyStaysRemoved(t *testing.T) {
	t.Parallel()
	for keepRemoved, want := range map[bool]string{true: "error", false: "2"} {
		s := newSet(t, keepRemoved)
		if err := write(t, s, "a", "1"); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(s.Dir + "/a"); err != nil {
			t.Fatal(err)
		}
		if err := write(t, s, "a", "2"); err != nil || s.read(t, "a") != want {
			t.Errorf("keep removed %v: %q, want %q: %v", keepRemoved, s.read(t, "a"), want, err)
		}
	}
}

// TestCopiesStayInDirectory checks that links which an agent made lead no copy out of the directory, and that the other
// copies are made.
func TestCopiesStayInDirectory(t *testing.T) {
	t.Parallel()
	s, outside := newSet(t, true), t.TempDir()
	for link, target := range map[string]string{"dir": outside, "file": outside + "/file", "up": "../.."} {
		if err := os.Symlink(target, filepath.Join(s.Dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(t, s, "dir/file", "x", "file", "x", "up/file", "x", "good", "x"); err != nil {
		t.Error(err)
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) > 0 {
		t.Errorf("the copies left the directory: %v, %v", found, err)
	}
	if s.read(t, "good") != "x" {
		t.Error("the other copy was not made")
	}
}

// TestCopyStaysWhereOriginalMoved checks that the only copy of a file that moved into the directory is not removed.
func TestCopyStaysWhereOriginalMoved(t *testing.T) {
	t.Parallel()
	s := newSet(t, false)
	s.Moved = "own"
	for range 2 {
		if err := write(t, s, "own/config", "1", "other/config", "1"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := write(t, s); err != nil {
				t.Fatal(err)
			}
			if got := s.read(t, "own/config") + " " + s.read(t, "other/config"); got != "1 error" {
				t.Errorf("%q", got)
			}
		}
	}
}
