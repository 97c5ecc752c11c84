package outlet

import (
	"slices"
	"strings"
	"testing"
)

func TestMissingListsWhatRulesDoNotAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ allowed, needed, missing string }{
		{"a.example", "a.example", ""},
		{"a.example:443", "a.example", ""},
		{"a.example:80", "a.example", "a.example"},
		{"a.example", "a.example:8443", "a.example:8443"},
		{"a.example:*", "a.example:8443", ""},
		{"a.example", "a.example:*", "a.example:*"},
		{"a.example:*", "a.example:*", ""},
		{"*.example", "a.example", ""},
		{"*.a.example", "a.example", "a.example"},
		{"a.example", "*.a.example", "*.a.example"},
		{"*.example", "*.a.example", ""},
		{"*.b.example", "*.a.example", "*.a.example"},
		{"A.Example.,b.example", "b.example,c.example,a.example", "c.example"},
		{"localhost:8080", "127.0.0.1:8080", ""},
		{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8081"},
		{"a.example:8443,a.example:8444", "a.example:8443,a.example:8444", ""},
	} {
		allowed, err := ParseRules(c.allowed)
		if err != nil {
			t.Fatal(err)
		}
		needed, err := ParseRules(c.needed)
		if err != nil {
			t.Fatal(err)
		}
		if missing := allowed.Missing(needed); missing.String() != c.missing || missing.IsEmpty() != (c.missing == "") {
			t.Errorf("%s of %s: %q is missing, want %q", c.needed, c.allowed, missing, c.missing)
		}
		if missing := (Rules{}).Missing(needed); missing.String() != needed.String() {
			t.Errorf("%s of nothing: %q is missing", c.needed, missing)
		}
	}
}

func TestTargetsNameOnePortOfEachHost(t *testing.T) {
	t.Parallel()
	rules, err := ParseRules("a.example,b.example:8443,b.example:22,*.c.example,d.example:*,[2001:db8::7]:80")
	if err != nil {
		t.Fatal(err)
	}
	got := rules.Targets()
	slices.Sort(got)
	if want := "[2001:db8::7]:80 a.example:443 b.example:22 b.example:8443 d.example:443"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
