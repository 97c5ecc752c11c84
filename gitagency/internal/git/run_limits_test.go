package git_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// A git that reads data of an agent ends at its limits, and the error names the data and the limit.
func TestReadingGitEndsAtLimits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	// git stripspace reads all of its input into memory before it prints anything.
	input := strings.Repeat("line\n", 8<<20)
	for name, limits := range map[string]readlimit.Limits{
		readlimit.Memory: {Memory: 32 << 20, Time: time.Minute},
		readlimit.Output: {Output: 1 << 20, Time: time.Minute},
	} {
		p := git.RunOptions{Stdin: input, Reading: readlimit.Reading{Limits: limits, What: "the text"}}
		_, err := repo.RunRead(t.Context(), p, "stripspace")
		var exceeded *readlimit.ExceededError
		if !errors.As(err, &exceeded) || exceeded.What != "the text" || exceeded.Limit != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
