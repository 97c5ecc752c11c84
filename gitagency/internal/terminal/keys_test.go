package terminal

import (
	"strings"
	"testing"
)

func TestKeyMatcherFindsSequence(t *testing.T) {
	t.Parallel()
	const detach = "\x10\x11"
	for name, c := range map[string]struct {
		keys, typed string // parts of typed are separated by |
		pass        string
		complete    bool
	}{
		"at once":                   {detach, "ab\x10\x11cd", "ab", true},
		"in parts":                  {detach, "a\x10|\x11", "a", true},
		"held back":                 {detach, "a\x10", "a", false},
		"another key follows":       {detach, "\x10|x", "\x10x", false},
		"begins again":              {detach, "\x10\x10\x11", "\x10", true},
		"in another order":          {detach, "\x11\x10x", "\x11\x10x", false},
		"one key":                   {"\x1d", "ab\x1d", "ab", true},
		"letters":                   {"qq", "aq|bqq", "aqb", true},
		"none":                      {"", detach, detach, false},
		"keys of kitty":             {detach, "\x1b[112;5u|\x1b[113;5u", "", true},
		"with their releases":       {detach, "\x1b[112;5:1u\x1b[112;5:3u\x1b[113;5:1u", "", true},
		"with num lock":             {detach, "\x1b[112;133u\x1b[113;133u", "", true},
		"keys of another layout":    {detach, "\x1b[112:80;5u\x1b[113::113;5u", "", true},
		"with shift":                {detach, "\x1b[112;6u\x1b[113;6u", "\x1b[112;6u\x1b[113;6u", false},
		"a release alone":           {detach, "\x1b[112;5:3ux", "\x1b[112;5:3ux", false},
		"keys of xterm":             {detach, "\x1b[27;5;112~\x1b[27;5;113~", "", true},
		"a function key in between": {detach, "\x10\x1b[15~\x11", "\x10\x1b[15~\x11", false},
		"an arrow in between":       {detach, "\x10\x1b[A\x11", "\x10\x1b[A\x11", false},
		"not complete":              {detach, "\x1b[112;5", "\x1b[112;5", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, pass, complete := keyMatcher{keys: []byte(c.keys)}, "", false
			for part := range strings.SplitSeq(c.typed, "|") {
				if complete {
					t.Errorf("complete before %q", part)
				}
				var more []byte
				more, complete = m.filter([]byte(part))
				pass += string(more)
			}
			if pass != c.pass || complete != c.complete {
				t.Errorf("passes %q and is complete: %t; want %q and %t", pass, complete, c.pass, c.complete)
			}
		})
	}
}

func FuzzKeyMatcherLosesNothing(f *testing.F) {
	f.Add([]byte("a\x10\x1b[112;5:3u\x1b[113;5ux\x1b[27;5;112~"), 3)
	f.Fuzz(func(t *testing.T, typed []byte, split int) {
		at := min(max(split, 0), len(typed))
		m := keyMatcher{keys: []byte("\x10\x11")}
		first, complete := m.filter(typed[:at])
		if complete {
			return
		}
		pass := string(first)
		second, complete := m.filter(typed[at:])
		if pass += string(second); !complete && pass+string(m.held) != string(typed) {
			t.Errorf("of %q, %q is passed and %q held", typed, pass, m.held)
		}
	})
}
