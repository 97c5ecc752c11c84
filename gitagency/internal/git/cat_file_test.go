package git

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// However many are asked for, and however long their names are, each gets its own answer and nobody waits for the other.
func TestManyObjectsAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	teller, err := repo.OpenCatFile(t.Context())
	l.Must(err)
	defer teller.Close()
	head := l.Git("rev-parse", "main")
	var names []string
	for range 300 {
		names = append(names, head, strings.Repeat("x", 500))
	}
	gittest.Within(t, "answered", func() {
		found, err := teller.Lookup(names...)
		if err != nil || len(found) != len(names) {
			t.Errorf("%d answers to %d questions, %v", len(found), len(names), err)
		}
		for i, o := range found {
			if want := i%2 == 0; (o.OID == head) != want || o.Missing() == want {
				t.Errorf("%d: got %+v", i, o)
			}
		}
	})
}

// Who is told to end is told so, and not that something is wrong with what git was about to say.
func TestWhoIsToldToEndIsNotToldOfTheObjects(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	teller, err := OpenRepo(l).OpenCatFile(t.Context())
	l.Must(err)
	defer teller.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough, judged := errors.New("enough"), 0
	err = teller.QueryEach(ctx, "info", []string{l.Git("rev-parse", "main"), strings.Repeat("1", 40)}, func(int, CatFileAnswer) error {
		judged++
		cancel(enough)
		return nil
	})
	if !errors.Is(err, enough) || judged != 1 {
		t.Errorf("%v, after %d", err, judged)
	}
}
