package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

func TestLandSucceedsIfVerifySandboxIsNotRemoved(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	fail := ""
	var said []string
	l := sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, at string) error {
		if at == fail {
			return boom
		}
		return nil
	}})
	l.Repo.Opts.Warn = func(message string) { said = append(said, message) }
	before := sandboxtest.DescribeState(l)
	for _, at := range []string{
		"throw-away/end:before", "throw-away/end:after", "throw-away/tree:after", "throw-away/registration:after", "throw-away/branch:after",
		"throw-away/sandbox-dir:after", "throw-away/snapshots:after", "throw-away/trash:after",
	} {
		fail, said = at, nil
		landed, err := landing.Land(t.Context(), l.Repo, landing.Request{ID: l.Sandbox.ID, Verify: "true", DryRun: true})
		if err != nil || !landed.Verified {
			t.Fatalf("%s: got %+v, %v", at, landed, err)
		}
		if len(said) != 1 || !strings.Contains(said[0], "could not be removed") {
			t.Errorf("%s: warnings %q", at, said)
		}
		fail = ""
		all, err := l.Repo.Invocations(core.ListRequest{All: true})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(i core.Invocation) bool { return i.Name == "verify "+l.Sandbox.ID })
		if i < 0 {
			t.Fatalf("%s: the verify sandbox is not listed", at)
		}
		if at == "throw-away/end:before" { // later its record says that it was discarded
			if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: all[i].ID}); err != nil {
				t.Errorf("%s: discard: %v", at, err)
			}
		}
		for range 2 { // the first prune keeps content that it finds, the second removes it
			if _, err := Prune(t.Context(), l.Repo, PruneRequest{Expire: "now"}); err != nil {
				t.Errorf("%s: prune: %v", at, err)
			}
		}
		if after := sandboxtest.DescribeState(l); after != before {
			t.Errorf("%s: state before\n%s\nand after\n%s", at, before, after)
		}
	}
}
