package core_test

import (
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
)

func TestShortIDCheckRefusesSuffixesInUse(t *testing.T) {
	t.Parallel()
	r, _ := coretest.Open(t, core.Options{})
	if err := os.MkdirAll(r.Store.InvocationDir(r.ID, "20250128120500-b7c9"), 0o700); err != nil {
		t.Fatal(err)
	}
	confusedWith, err := r.ShortIDCheck()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"20260128120500-b7c9": "20250128120500-b7c9",
		"20260128120500-b7ca": "",
		"20260128120500-2026": "2026", // a prefix of every id of that year
	} {
		if got := confusedWith(id); got != want {
			t.Errorf("%s is confused with %q, want %q", id, got, want)
		}
	}
	for range 100 { // four digits are not enough for all invocations that may ever be
		if confusedWith("20260128120500-b7c9") == "" {
			return
		}
	}
	t.Error("it never gives up, so that ids could run out")
}

func TestAbbreviationIsUnique(t *testing.T) {
	t.Parallel()
	r, _ := coretest.Open(t, core.Options{})
	for _, id := range []string{"20250128120500-b7c9", "20260128120500-b7c9", "20260128120500-b7ca", "20260128120501-2025", "20260128120502-2027"} {
		if err := os.MkdirAll(r.Store.InvocationDir(r.ID, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	abbreviate, err := r.Abbreviation()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"20260128120500-b7ca": "b7ca",
		"20260128120500-b7c9": "20260128120500-b7c9", // another one ends with b7c9
		"20260128120501-2025": "20260128120501-2025", // another one begins with 2025
		"20260128120502-2027": "2027",
		"20260128120509-ffff": "20260128120509-ffff", // there is no such invocation
		"not an id":           "not an id",
	} {
		if got := abbreviate(id); got != want {
			t.Errorf("%s is abbreviated to %q, want %q", id, got, want)
		}
	}
}
