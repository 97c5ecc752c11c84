package terminal

import (
	"bytes"
	"strings"
	"testing"
)

func TestRecentOutputReplays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ output, replay string }{
		"text":                  {"line\r\n\x1b[31mred\x1b[m", "line\r\n\x1b[31mred\x1b[m"},
		"screen":                {"\x1b[?1049h\x1b[2J\x1b[Hdrawn", "\x1b[?1049h\x1b[2J\x1b[Hdrawn"},
		"requests":              {"a\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[18t\x1b[?2026$p\x1b[?u\x1b[>q\x1bZ\x05b", "ab"},
		"bell":                  {"a\ab", "ab"},
		"colour request":        {"a\x1b]11;?\ab\x1b]10;?\x1b\\c", "abc"},
		"clipboard":             {"a\x1b]52;c;c2VjcmV0\ab", "ab"},
		"title and link":        {"\x1b]0;title\a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "\x1b]0;title\a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"},
		"device control":        {"a\x1bP+q544e\x1b\\b", "ab"},
		"graphics":              {"a\x1b_Ga=q;AAAA\x1b\\b", "ab"},
		"string cut by another": {"a\x1b]52;c\x1b[31mb", "a\x1b[31mb"},
		"not complete":          {"a\x1b]0;tit", "a\x1b]0;tit"},
		"soft reset":            {"\x1b[!p\x1b[2 q", "\x1b[!p\x1b[2 q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r recentOutput
			r.add([]byte(c.output))
			if got := string(r.replay()); got != c.replay {
				t.Errorf("got %q, want %q", got, c.replay)
			}
		})
	}
}

// TestRecentOutputIsBounded checks that old output is dropped, that modes it has switched on are switched on again, and
// that no half of a sequence or character is left at the beginning.
func TestRecentOutputIsBounded(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"sequences": "\x1b[38;5;123m", "characters": "€", "letters": "abc"} {
		var r recentOutput
		r.add([]byte("\x1b[?1049h\x1b[?25l\x1b[>1u\x1b="))
		written := r.end()
		for range 10 {
			chunk := []byte(strings.Repeat(unit, maxRecent/4/len(unit)+1))
			for ; len(chunk) > 0; chunk = chunk[min(1021, len(chunk)):] {
				part := chunk[:min(1021, len(chunk))]
				r.add(part)
				written += int64(len(part))
			}
		}
		if len(r.data) < maxRecent || len(r.data) >= 2*maxRecent || r.end() != written {
			t.Errorf("%s: %d bytes are kept, up to %d of %d", name, len(r.data), r.end(), written)
		}
		prefix, rest := "\x1b[?1049h\x1b[?25l\x1b[>1u\x1b=", r.replay()
		if !bytes.HasPrefix(rest, []byte(prefix)) {
			t.Errorf("%s: begins with %q", name, rest[:40])
			continue
		}
		if text := strings.TrimPrefix(string(rest), prefix); unit != "abc" && text != strings.Repeat(unit, len(text)/len(unit)) {
			t.Errorf("%s: begins with %q and ends with %q", name, text[:20], text[len(text)-20:])
		}
	}
}

// FuzzModeTrackerEnable checks that the bytes of enable switch on exactly the modes that any output has switched on.
func FuzzModeTrackerEnable(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b[?25l\x1b[>1u\x1b[>4;2m\x1b="))
	f.Fuzz(func(t *testing.T, output []byte) {
		var first, second modeTracker
		first.follow(output)
		second.follow(first.enable())
		if want, got := first.reset(), second.reset(); !bytes.Equal(want, got) {
			t.Errorf("after %q, the resets are %q and %q", output, want, got)
		}
	})
}
