package ids

import (
	"bytes"
	"testing"
	"time"
)

func TestNewIDFormat(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("east", 3600)
	s := Source{
		Now:  func() time.Time { return time.Date(2026, 1, 28, 13, 5, 0, 999, zone) },
		Rand: bytes.NewReader([]byte{0xb7, 0xc9}),
	}
	id, at, err := s.New()
	if err != nil {
		t.Fatal(err)
	}
	if id != "20260128120500-b7c9" || at.Format(time.RFC3339) != "2026-01-28T12:05:00Z" {
		t.Errorf("got %s %s", id, at)
	}
	if Suffix(id) != "b7c9" {
		t.Errorf("suffix %s", Suffix(id))
	}
}

func TestNewReportsRandomnessError(t *testing.T) {
	t.Parallel()
	if _, _, err := (Source{Rand: bytes.NewReader(nil)}).New(); err == nil {
		t.Error("no error")
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	const id = "20260128120500-b7c9"
	for query, want := range map[string]bool{
		"": true, id: true, "2026": true, "20260128120500-": true, "b7c9": true, "b7": true, "b": true,
		"c9": false, "-b7c9": false, "B7C9": false, "b7c90": false, id + "0": false, "0260": false, "@": false,
	} {
		if Matches(id, query) != want {
			t.Errorf("Matches(%q, %q) is %v", id, query, !want)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range []string{
		"20260128120500-b7c9", "20260128120500-B7C9", "20260128126000-b7c9", "20260128120500_b7c9",
		"", "../../etc/passwd", "20260128120500-b7c", "20260128120500-b7c9 ", "2026012812050é-b7c9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !Valid(s) {
			return
		}
		at, ok := Time(s)
		if !ok || at.Format(timeLayout)+s[14:] != s || len(s) != 19 {
			t.Errorf("%q is called valid", s)
		}
	})
}
