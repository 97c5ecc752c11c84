package landing

import (
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestCheckReviewedRequiresSubmission(t *testing.T) {
	t.Parallel()
	repo := &core.Repository{Settings: &settings.Reader{Config: settingsFromLines(t, "global agency.requirereview=true")}}
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
		err := checkReviewed(repo, entry, c.tip)
		var refused *fault.NotSubmittedError
		if errors.As(err, &refused) != (c.says != "") || refused != nil && (!strings.Contains(refused.Error(), c.says) || refused.Moved != (c.state == store.Review)) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := checkReviewed((&core.Repository{Settings: &settings.Reader{}}), entry, c.tip); err != nil {
			t.Errorf("%+v, without agency.requireReview: %v", c, err)
		}
	}
}

// settingsFromLines makes settings from "scope key=value" lines.
func settingsFromLines(t *testing.T, lines ...string) config.Settings {
	t.Helper()
	cfg := config.Settings{}
	for _, line := range lines {
		scope, rest, _ := strings.Cut(line, " ")
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			t.Fatalf("%q is not a setting", line)
		}
		cfg[key] = append(cfg[key], config.Setting{Value: value, Scope: scope, Origin: "file:" + scope})
	}
	return cfg
}
