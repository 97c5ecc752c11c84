package pathland

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
)

func TestDiscardKeepsTheChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, landBase)
	before := l.files()
	after := landFiles(l)
	_, err := discard.Run(t.Context(), l.repo, discard.Request{Query: l.id})
	l.must(err)
	if !maps.Equal(l.files(), before) {
		t.Errorf("the directories changed: %q", l.files())
	}
	kept, err := pathset.ReadTree(t.Context(), pathset.States(l.repo).Git, core.SnapshotRef(l.id, 1))
	l.must(err)
	if len(kept) != len(after) || kept["1/new/file"].OID == "" {
		t.Errorf("kept %v", kept)
	}
	if len(l.warnings) != 1 || !strings.Contains(l.warnings[0], l.id+"/1") {
		t.Error(l.warnings)
	}
	if _, err := l.land(); !errors.As(err, new(*fault.EndedError)) {
		t.Errorf("%v", err)
	}
}

// An interrupt after the commit point comes too late: the landing is completed and reported.
func TestLandCompletesAfterCommitPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"land/done:after", "land/record:after", "land/journal-end:after"} {
		l := newLab(t, landBase)
		after := landFiles(l)
		ctx, cancel := context.WithCancel(t.Context())
		reached := false
		l.repo.Opts.Fault = func(_ context.Context, at string) error {
			if at == point {
				reached = true
				cancel()
			}
			return nil
		}
		res, err := Land(ctx, l.repo, l.id, false)
		if !reached || err != nil || len(res.Files) == 0 {
			t.Errorf("%s, reached %v: %+v, %v", point, reached, res, err)
		}
		l.repo.Opts.Fault = nil
		l.checkFiles(point, after)
		l.checkNothingLeft()
		cancel()
	}
}
