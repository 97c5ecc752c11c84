package runs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/runner"
)

// linesStream is a stream whose events are its lines.
type linesStream struct{ lines []string }

func (s *linesStream) Line(line []byte) []runner.Event {
	s.lines = append(s.lines, string(line))
	return []runner.Event{{Kind: runner.Message, Text: string(line)}}
}
func (s *linesStream) ErrorLine([]byte) []runner.Event { return nil }
func (s *linesStream) Summary() runner.Summary         { return runner.Summary{} }

func TestStreamReaderSplitsLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxStreamLine+1)
	for name, c := range map[string]struct{ writes, want []string }{
		"one write":        {[]string{"a\nb\n"}, []string{"a", "b"}},
		"many writes":      {[]string{"a", "b", "\nc", "", "\n"}, []string{"ab", "c"}},
		"empty lines":      {[]string{"\n\na\n"}, []string{"", "", "a"}},
		"no newline":       {[]string{"a\nb"}, []string{"a", "b"}},
		"too long":         {[]string{"a\n" + long, "more\nb\n"}, []string{"a", "b"}},
		"too long, split":  {[]string{long[:10], long[10:], "\n", "b"}, []string{"b"}},
		"too long, no end": {[]string{"a\n", long}, []string{"a"}},
		"nothing":          {nil, nil},
	} {
		stream, reported := &linesStream{}, 0
		r := &streamReader{stream: stream, report: func(runner.Event) { reported++ }}
		for _, text := range c.writes {
			if n, err := r.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%s: Write returned %d, %v", name, n, err)
			}
		}
		r.summary()
		if !slices.Equal(stream.lines, c.want) || reported != len(c.want) {
			t.Errorf("%s: got %.50q, %d events, want %.50q", name, stream.lines, reported, c.want)
		}
	}
}

func TestLogIsRotatedAndFollowed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdout.log")
	log, err := openLog(path, maxLog, func() {})
	if err != nil {
		t.Fatal(err)
	}
	var all, followed bytes.Buffer
	follower := &tail{path: path, to: &followed}
	defer follower.close()
	block := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB
	for i := range 40 {
		block[0] = byte('a' + i%26)
		if _, err := log.Write(block); err != nil {
			t.Fatal(err)
		}
		all.Write(block)
		if i == 20 { // opened anew, as by a resumed run
			if err := log.file.Close(); err != nil {
				t.Fatal(err)
			}
			if log, err = openLog(path, maxLog, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := follower.copyNew(); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.file.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(followed.Bytes(), all.Bytes()) {
		t.Errorf("the follower got %d bytes of %d", followed.Len(), all.Len())
	}
	var kept bytes.Buffer
	reader := &tail{path: path, to: &kept}
	defer reader.close()
	if err := reader.copyNew(); err != nil {
		t.Fatal(err)
	}
	if kept.Len() < maxLog || kept.Len() > 2*maxLog || !bytes.HasSuffix(all.Bytes(), kept.Bytes()) {
		t.Errorf("%d bytes are kept", kept.Len())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

// A follower that is slow, because its reader is, gets all that is kept.
func TestSlowFollowerGetsAllThatIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdout.log")
	log, err := openLog(path, 6, func() {})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	follower := &tail{path: path, to: &got}
	defer follower.close()
	for _, line := range []string{"1a\n", "1b\n", "2a\n", "2b\n", "3a\n", "3b\n", "4a\n", "4b\n"} {
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if line == "1a\n" || line == "3a\n" || line == "4b\n" {
			if err := follower.copyNew(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.file.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "1a\n1b\n2a\n2b\n3a\n3b\n4a\n4b\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

// A log that an earlier run left is followed from its start; one that does not exist yet, once it does.
func TestFollowBeginsBeforeLogExists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdout.log")
	var got bytes.Buffer
	follower := &tail{path: path, to: &got}
	defer follower.close()
	for _, text := range []string{"", "one\n", "two\n"} {
		if text != "" {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := follower.copyNew(); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != "one\ntwo\n" {
		t.Errorf("got %q", got.String())
	}
}

func TestFirstLine(t *testing.T) {
	t.Parallel()
	if got := firstLine("\n\n  first \r\nsecond"); got != "first" {
		t.Errorf("first line: %q", got)
	}
}
