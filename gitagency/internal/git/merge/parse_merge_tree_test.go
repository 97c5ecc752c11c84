package merge

import (
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// parseMergeTree returns sorted, unique conflicts with kinds for every output that it accepts.
func FuzzParseMergeTree(f *testing.F) {
	oid := strings.Repeat("a", 40)
	for _, s := range []string{
		oid + "\x00", oid + "\x00\x00", oid + "\n",
		oid + "\x00100644 " + oid + " 1\tf\x00100644 " + oid + " 3\tf\x00\x001\x00f\x00CONFLICT (modify/delete)\x00text\n\x00",
		oid + "\x00\x002\x00a\x00b\x00CONFLICT (directory rename unclear split)\x00text\n\x00",
		oid + "\x00100644 " + oid + " 2\tf\x00\x009\x00f\x00x\x00",
		oid + "\x00\x001\x00f\x00Auto-merging\x00Auto-merging f\n\x00",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, out string, conflicting bool) {
		m, err := parseMergeTree(out, conflicting)
		if err != nil {
			return
		}
		if !object.IsOID(m.Tree) || (len(m.Conflicts) > 0) != conflicting {
			t.Fatalf("%q: %v", out, m)
		}
		if !slices.IsSortedFunc(m.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("not sorted: %v", m)
		}
		for i, c := range m.Conflicts {
			if len(c.Kinds) == 0 || i > 0 && m.Conflicts[i-1].Path == c.Path {
				t.Errorf("%v", c)
			}
		}
	})
}

// Promise: parseMergeTree reports a conflict also for messages without staged paths, as of a directory rename split, and
// refuses malformed output.
func TestParseMergeTree(t *testing.T) {
	t.Parallel()
	oid := strings.Repeat("a", 40)
	m, err := parseMergeTree(oid+"\x00\x002\x00a\x00b\x00CONFLICT (directory rename unclear split)\x00text\n\x00", true)
	if err != nil || len(m.Conflicts) != 2 || m.Conflicts[1].Path != "b" || m.Conflicts[1].Kinds[0] != "directory rename unclear split" {
		t.Errorf("%v, %v", m, err)
	}
	m, err = parseMergeTree(oid+"\x00100644 "+oid+" 1\tf\x00100644 "+oid+" 3\tf\x00\x00", true)
	if err != nil || len(m.Conflicts) != 1 || m.Conflicts[0].Kinds[0] != "modify/delete" || len(m.Conflicts[0].Stages) != 2 {
		t.Errorf("%v, %v", m, err)
	}
	for _, out := range []string{
		"", oid, oid + "\x00", "x\x00", oid + "\x00100644 " + oid + " 4\tf\x00\x00", oid + "\x00100644 x 1\tf\x00\x00",
		oid + "\x00100644 " + oid + " 1\tf\x00\x005\x00f\x00x\x00y\x00", oid + "\x00100644 " + oid + " 1 f\x00\x00",
	} {
		if m, err := parseMergeTree(out, true); err == nil {
			t.Errorf("%q: %v", out, m)
		}
	}
}
