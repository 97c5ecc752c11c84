package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// A log that grows is rotated, and no event is lost or mixed when several processes append meanwhile; only the oldest part
// is dropped.
func TestAppendEventRotatesLog(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	type entry struct {
		Writer, Number int
		Text           string
	}
	const writers, each = 4, 200
	text := strings.Repeat("x", 48<<10)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for number := range each {
				if err := s.AppendEvent(repoID, invID, entry{writer, number, text}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	last := map[int]int{}
	var size int
	must(t, s.ReadEvents(repoID, invID, func(line []byte) {
		size += len(line)
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%.100q: %v", line, err)
		}
		if before, seen := last[e.Writer]; seen && e.Number != before+1 {
			t.Errorf("after event %d of writer %d comes %d", before, e.Writer, e.Number)
		}
		last[e.Writer] = e.Number
	}))
	for writer := range writers {
		if last[writer] != each-1 {
			t.Errorf("the last event of writer %d is %d", writer, last[writer])
		}
	}
	if size > 2*maxEventLog+1<<20 || size < maxEventLog {
		t.Errorf("%d bytes are kept", size)
	}
}
