package procfs

import (
	"strings"
	"testing"
	"time"
)

// stats maps lines of /proc/PID/stat to whether the process is dead. A process chooses its name, so the name may
// hold parentheses and newlines.
var stats = map[string]bool{
	"1 (git) S 0 1":           false,
	"1 (git) Z 0 1":           true,
	"1 (git) X (dead)":        false, // the last parenthesis ends the name
	"1 (git) X 0":             true,
	"1 (a) Z b) R 0":          false,
	"1 (a) R b) Z 0":          true,
	"1 (\n) Z\n) S 0":         false,
	"1 ()) Z":                 true,
	"1 (git) ":                false,
	"1 (git)":                 false,
	"":                        false,
	")":                       false,
	"1 (git) t 0":             false,
	"1 (zombie Z) D 0":        false,
	strings.Repeat(")", 4096): false,
}

func TestParseStatFindsState(t *testing.T) {
	t.Parallel()
	for stat, want := range stats {
		if s, ok := parseStat(stat + " 7 8"); (ok && s.IsDead()) != want {
			t.Errorf("%.40q: %+v, %v", stat, s, ok)
		}
	}
}

func TestParseStatReadsParentAndGroup(t *testing.T) {
	t.Parallel()
	if s, ok := parseStat("12 (sh) S 34 56 56 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1234 99"); !ok || s.Started != 12340*time.Millisecond {
		t.Errorf("got %+v, %t", s, ok)
	}
	if s, ok := parseStat("12 (a) b (c)) S 34 56 78 0"); !ok || s != (Stat{State: 'S', Parent: 34, Group: 56}) {
		t.Errorf("got %+v, %v", s, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	for stat := range stats {
		f.Add(stat, "Z 1")
	}
	f.Fuzz(func(t *testing.T, name, after string) {
		if strings.Contains(after, ")") {
			return
		}
		// The result must not depend on the name.
		got, gotOK := parseStat("1 (" + name + ") " + after)
		if want, wantOK := parseStat("1 (git) " + after); got != want || gotOK != wantOK {
			t.Errorf("%q with %q: %+v, %v", name, after, got, gotOK)
		}
	})
}
