package git

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestListCommits(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	tree, missing := base+"^{tree}", strings.Repeat("ab", len(base)/2)
	commit := func(subject, parent string) string {
		return l.Git("-c", "user.name=A\u0007", "commit-tree", "-m", subject, "-p", parent, tree)
	}
	first := commit("first", base)
	second := commit("second \x1b[31m", first)
	side := commit("side", base)
	repo := OpenRepo(l)
	for _, tt := range []struct {
		from, without []string
		most          int
		want          string
	}{
		{[]string{second}, []string{base}, 10, "first|second \x1b[31m"},
		{[]string{second, ""}, []string{base, missing, ""}, 1, "second \x1b[31m"},
		{[]string{missing, side}, []string{base}, 10, "side"},
		{[]string{missing}, []string{base}, 10, ""},
		{[]string{l.Git("rev-parse", tree)}, nil, 10, ""},
		{[]string{""}, nil, 10, ""},
	} {
		commits, err := repo.ListCommits(t.Context(), tt.from, tt.without, tt.most)
		var subjects []string
		for _, c := range commits {
			subjects = append(subjects, c.Subject)
			if c.Time.IsZero() || c.Author == "" {
				t.Errorf("got %+v", c)
			}
		}
		if got := strings.Join(subjects, "|"); err != nil || got != tt.want {
			t.Errorf("%v without %v: got %q and %v, want %q", tt.from, tt.without, got, err, tt.want)
		}
	}
	if _, err := repo.ListCommits(t.Context(), []string{"--all"}, nil, 1); err == nil {
		t.Error("an option was accepted as a commit")
	}
}
