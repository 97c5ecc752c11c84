package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// newEntry returns an entry whose record is its name.
func newEntry(id, name string, broken Defect) Entry[string] {
	return Entry[string]{ID: id, Record: name, Defect: broken}
}

func entryName(e Entry[string]) string { return e.Record }

func TestResolve(t *testing.T) {
	t.Parallel()
	const a, b, c, d = "20260128120500-b7c9", "20260128120500-b7ff", "20270128120500-0000", "20280128120500-0000"
	entries := []Entry[string]{
		newEntry(a, "alpha", NoDefect), newEntry(b, "beta", NoDefect), newEntry(c, "2026", NoDefect), newEntry(d, "delta", CorruptMeta),
	}
	for _, q := range []struct {
		query     string
		named     func(Entry[string]) string
		want      string
		ambiguous []string
	}{
		{query: a, want: a},
		{query: a, named: entryName, want: a},
		{query: a[:18], want: a},
		{query: "2027", want: c},
		{query: "2", ambiguous: []string{a, b, c}},
		{query: a[:16], ambiguous: []string{a, b}},
		{query: "2026", ambiguous: []string{a, b}},
		{query: "2026", named: entryName, want: c}, // a name takes precedence over a prefix
		{query: "alpha", named: entryName, want: a},
		{query: "alpha"},
		{query: "alph", named: entryName},
		{query: "ALPHA", named: entryName},
		{query: d, want: d},
		{query: d[:18]},
		{query: "2028"},
		{query: "delta", named: entryName},
		{query: ""},
		{query: "", named: entryName},
		{query: "", named: func(Entry[string]) string { return "" }},
		{query: " " + a},
		{query: a + "0"},
		{query: "b7c9"},
		{query: strings.ToUpper(a)},
	} {
		got, err := Resolve("invocation", entries, q.query, strings.HasPrefix, q.named)
		var none *NotFoundError
		var many *AmbiguousError
		switch {
		case q.ambiguous != nil:
			if !errors.As(err, &many) || !slices.Equal(many.Matches, q.ambiguous) || many.Query != q.query || many.Kind != "invocation" {
				t.Errorf("%q: %v, %v", q.query, got.ID, err)
			}
		case q.want == "":
			if !errors.As(err, &none) || none.Query != q.query || none.Kind != "invocation" {
				t.Errorf("%q: %v, %v", q.query, got.ID, err)
			}
		case err != nil || got.ID != q.want:
			t.Errorf("%q: %v, %v; want %s", q.query, got.ID, err, q.want)
		}
	}
}

// TestResolvePrefersExactID uses ids of which one is a prefix of the others, in every order.
func TestResolvePrefersExactID(t *testing.T) {
	t.Parallel()
	for _, ids := range [][]string{{"aa", "aab", "aac"}, {"aab", "aa", "aac"}, {"aab", "aac", "aa"}} {
		for _, broken := range []Defect{NoDefect, MissingTree} {
			var entries []Entry[string]
			for _, id := range ids {
				entries = append(entries, newEntry(id, "", map[bool]Defect{true: broken}[id == "aa"]))
			}
			if got, err := Resolve("x", entries, "aa", strings.HasPrefix, nil); err != nil || got.ID != "aa" {
				t.Errorf("%q: %v, %v", ids, got.ID, err)
			}
		}
	}
}

// FuzzResolve compares Resolve with a direct implementation of its rules.
func FuzzResolve(f *testing.F) {
	f.Add("20260128120500-b7c9 20260128120500-b7ff 20270128120500-0000!", "2026")
	f.Add("a ab abc", "a")
	f.Add("a! ab", "a")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, list, query string) {
		var entries []Entry[string]
		seen := map[string]bool{}
		for word := range strings.FieldsSeq(list) {
			id, broken := strings.CutSuffix(word, "!")
			if id == "" || seen[id] {
				continue
			}
			seen[id] = true
			reason := NoDefect
			if broken {
				reason = CorruptMeta
			}
			entries = append(entries, newEntry(id, "", reason))
		}
		got, err := Resolve("x", entries, query, strings.HasPrefix, nil)

		if seen[query] {
			if err != nil || got.ID != query {
				t.Errorf("%q in %q: %q, %v", query, list, got.ID, err)
			}
			return
		}
		var want []string
		for _, e := range entries {
			if query != "" && e.Defect == NoDefect && strings.HasPrefix(e.ID, query) {
				want = append(want, e.ID)
			}
		}
		var many *AmbiguousError
		switch {
		case len(want) == 0 && !errors.As(err, new(*NotFoundError)),
			len(want) == 1 && (err != nil || got.ID != want[0]),
			len(want) > 1 && (!errors.As(err, &many) || !slices.Equal(many.Matches, want)):
			t.Errorf("%q in %q: %q, %v; want %q", query, list, got.ID, err, want)
		}
		if err != nil && got.ID != "" {
			t.Errorf("%q: both an error and the result %q", query, got.ID)
		}
	})
}
