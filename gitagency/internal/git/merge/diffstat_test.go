package merge

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseNumstatSumsPerCommit(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	counted := map[string]DiffStat{a: {}, b: {}}
	out := a + "\x001\t2\ta file\x00-\t-\tbinary\x003\t0\t\x00" + b + "\x00new\tname\x00"
	if err := parseNumstat(out, counted); err != nil {
		t.Fatal(err)
	}
	// The renamed file is named like the commit b.
	if want := map[string]DiffStat{a: {3, 4, 2}, b: {}}; !reflect.DeepEqual(counted, want) {
		t.Errorf("%+v", counted)
	}
}

func FuzzParseNumstat(f *testing.F) {
	commit := strings.Repeat("a", 40)
	for _, out := range []string{"", commit + "\x00", commit + "\x001\t2\tx\x00", commit + "\x001\t2\t\x00a\x00b\x00", "1\t2\tx\x00", commit + "\x00-\t-\t\x00"} {
		f.Add(out)
	}
	f.Fuzz(func(t *testing.T, out string) {
		counted := map[string]DiffStat{commit: {}}
		if err := parseNumstat(out, counted); err != nil {
			return
		}
		if c := counted[commit]; len(counted) != 1 || c.Files < 0 || c.Files > strings.Count(out, "\x00") {
			t.Errorf("%q is %+v", out, counted)
		}
	})
}
