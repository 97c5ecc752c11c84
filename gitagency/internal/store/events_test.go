package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadEventsBoundsLinesAndSize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxEventLine)
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"empty":                               {"", nil},
		"whole lines":                         {"a\nb\n", []string{"a", "b"}},
		"last line without newline":           {"a\nb", []string{"a", "b"}},
		"empty lines":                         {"\n\na\n", []string{"", "", "a"}},
		"a line that is too long is left out": {"a\n" + long + long + "tail\nb\n", []string{"a", "b"}},
		"a last line that is too long is left out":   {"a\n" + long + long + "tail", []string{"a"}},
		"only the end of a history that is too long": {strings.Repeat(strings.Repeat("y", 1<<10)+"\n", maxHistoryBytes>>10) + "last\n", nil},
		"a line of the maximal length":               {long[:maxEventLine-1] + "\n", []string{long[:maxEventLine-1]}},
		"a line as long as the buffer is left out":   {long + "\nb\n", []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Store{Root: t.TempDir()}
			dir := s.InvocationDir(repoID, invID)
			must(t, os.MkdirAll(dir, 0o700))
			must(t, os.WriteFile(eventsPath(dir), []byte(tt.text), 0o600))
			var got []string
			must(t, s.ReadEvents(repoID, invID, func(line []byte) { got = append(got, strings.TrimSuffix(string(line), "\n")) }))
			if len(tt.text) > maxHistoryBytes {
				if n := len(got); n >= maxHistoryBytes>>10 || n < maxHistoryBytes>>10-2<<10 || got[n-1] != "last" || len(got[0]) != 1<<10 {
					t.Errorf("got %d lines", n)
				}
				return
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %.100q, want %.100q", got, tt.want)
			}
		})
	}
}

func TestReadEventsWithoutHistory(t *testing.T) {
	t.Parallel()
	s := Store{Root: t.TempDir()}
	must(t, s.ReadEvents(repoID, invID, func(line []byte) { t.Errorf("got %q", line) }))
}

func TestReadEventsRefusesNonRegularFile(t *testing.T) {
	t.Parallel()
	s := Store{Root: t.TempDir()}
	dir := s.InvocationDir(repoID, invID)
	must(t, os.MkdirAll(dir, 0o700))
	for name, plant := range map[string]func(path string) error{
		"a FIFO without a writer": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a symlink":               func(path string) error { return os.Symlink(filepath.Join(dir, "elsewhere"), path) },
		"a directory":             func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		must(t, os.RemoveAll(eventsPath(dir)))
		must(t, plant(eventsPath(dir)))
		if err := s.ReadEvents(repoID, invID, func([]byte) {}); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}
