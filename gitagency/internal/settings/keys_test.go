package settings

import (
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
)

// Commands in a sandbox without walls can write the repository's configuration, so it may require review but not
// switch it off.
func TestRepositoryCanRequireButNotWaiveReview(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines   []string
		want    bool
		invalid bool
	}{
		{nil, false, false},
		{[]string{"local agency.requirereview=true"}, true, false},
		{[]string{"local agency.requirereview=true", "worktree agency.requirereview=false"}, true, false},
		{[]string{"system agency.requirereview=1", "local agency.requirereview=false"}, true, false},
		{[]string{"global agency.requirereview=true", "worktree agency.requirereview="}, true, false},
		{[]string{"system agency.requirereview=true", "global agency.requirereview=off"}, false, false},
		{[]string{"global agency.requirereview=true", "local agency.requirereview=true", "command agency.requirereview=false"}, false, false},
		{[]string{"local agency.requirereview=ture"}, false, true}, // a typo must not disable review
		{[]string{"global agency.requirereview=ture", "local agency.requirereview=no"}, false, true},
	} {
		reader := &Reader{Config: settingsFromLines(t, c.lines...)}
		got, err := reader.Bool(RequireReviewKey, false)
		if got != c.want || fault.Is[*fault.InvalidError](err) != c.invalid {
			t.Errorf("%q: %v, %v", c.lines, got, err)
		}
	}
	reader := &Reader{Config: settingsFromLines(t, "global agency.land.sign=true", "local agency.land.sign=false")}
	if got, err := reader.Bool(signKey, true); got || err != nil {
		t.Errorf("for other keys the last value counts: %v, %v", got, err)
	}
}

func TestCopyPatternsComeFromEveryScope(t *testing.T) {
	t.Parallel()
	reader := &Reader{Config: settingsFromLines(t, "global agency.copy=.env", "global agency.copy=", "global agency.copy=.venv", "local agency.copy=!/a/b*", "worktree agency.copy=node_modules/")}
	got, err := reader.CopyPatterns()
	if want := []string{".venv", "!/a/b*", "node_modules/"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, value := range []string{"/", "!", "..", "../x", "a/../b", "./.env", "a//b", "#x", " .env", ".env ", "! x", "!!x/..", "a\nb"} {
		if err := checkCopyPattern(value); !fault.Is[*fault.InvalidError](err) {
			t.Errorf("%q: got %v, want an error", value, err)
		}
	}
	for _, value := range []string{"", ".env", "*.local", "**/x", "a/**", "/a/", "x...y", "..x", `\#x`} {
		if err := checkCopyPattern(value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
