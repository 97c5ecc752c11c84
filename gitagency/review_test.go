package gitagency

import (
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestCheckReviewedRequiresSubmission(t *testing.T) {
	t.Parallel()
	repo := &Repository{git: &git.Repo{Config: settingsFromLines(t, "global agency.requirereview=true")}}
	for _, c := range []struct {
		state, submitted, tip string
		says                  string // empty when it may land
	}{
		{"", "", "a", "was not submitted for review"},
		{store.Rejected, "a", "a", "was rejected, and has not been submitted again"},
		{store.Review, "a", "a", ""},
		{store.Review, "a", "b", "has changed since it was submitted; submit it again"},
	} {
		entry := store.Entry[store.InvocationMeta]{ID: "x", Record: store.InvocationMeta{Landing: c.state, Submission: store.Submission{SubmittedCommit: c.submitted}}}
		err := repo.checkReviewed(entry, c.tip)
		var refused *NotSubmittedError
		if errors.As(err, &refused) != (c.says != "") || refused != nil && (!strings.Contains(refused.Error(), c.says) || refused.Moved != (c.state == store.Review)) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := (&Repository{git: &git.Repo{}}).checkReviewed(entry, c.tip); err != nil {
			t.Errorf("%+v, without agency.requireReview: %v", c, err)
		}
	}
}

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
		repo := &Repository{git: &git.Repo{Config: settingsFromLines(t, c.lines...)}}
		got, err := repo.boolSetting(requireReviewKey, false)
		if got != c.want || is[*InvalidError](err) != c.invalid {
			t.Errorf("%q: %v, %v", c.lines, got, err)
		}
	}
	repo := &Repository{git: &git.Repo{Config: settingsFromLines(t, "global agency.land.sign=true", "local agency.land.sign=false")}}
	if got, err := repo.boolSetting(signKey, true); got || err != nil {
		t.Errorf("for other keys the last value counts: %v, %v", got, err)
	}
}
