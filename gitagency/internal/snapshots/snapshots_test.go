package snapshots

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// Promise: a snapshot answers to its commit, a prefix of at least four characters, and the number within its invocation. What
// matches two different commits is ambiguous; two names of one commit are not.
func TestMatch(t *testing.T) {
	t.Parallel()
	const a, b = "20260128120500-b7c9", "20260128120500-b7d0"
	commit := func(start string) string { return start + strings.Repeat("0", 40-len(start)) }
	all := []Snapshot{
		{Invocation: a, Number: 1, ID: commit("abcd1")},
		{Invocation: a, Number: 12, ID: commit("abcd2")},
		{Invocation: b, Number: 1, ID: commit("ef001")},
		{Invocation: b, Number: 2, ID: commit("ef001")},
	}
	for query, want := range map[string]string{
		a + "/1":        a + "/1",
		"b7c9/12":       a + "/12",
		"b7d/2":         b + "/2",
		"abcd1":         a + "/1",
		"ABCD2":         a + "/12",
		commit("abcd2"): a + "/12",
		"ef00":          b + "/1",
		"abcd":          "ambiguous",
		"b7/1":          "ambiguous",
		"abc":           "unknown",
		"b7c9/2":        "unknown",
		"b7c9/01":       "unknown",
		"/1":            "unknown",
		"":              "unknown",
	} {
		s, err := Match(all, query)
		got := s.Name()
		switch {
		case fault.Is[*fault.NotFoundError](err):
			got = "unknown"
		case fault.Is[*fault.AmbiguousError](err):
			got = "ambiguous"
		case err != nil:
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", query, got, want)
		}
	}
}
