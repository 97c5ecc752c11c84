package git

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Lookup must answer many long names in order. Writer and reader must not block each other on a full pipe.
func TestCatFileLookupAnswersManyNames(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	catFile, err := repo.OpenCatFile(t.Context())
	l.Must(err)
	defer catFile.Close()
	head := l.Git("rev-parse", "main")
	var names []string
	for range 300 {
		names = append(names, head, strings.Repeat("x", 500))
	}
	gittest.Within(t, "Lookup of many names", func() {
		found, err := catFile.Lookup(names...)
		if err != nil || len(found) != len(names) {
			t.Errorf("%d answers to %d names, %v", len(found), len(names), err)
		}
		for i, o := range found {
			if want := i%2 == 0; (o.OID == head) != want || o.Missing() == want {
				t.Errorf("%d: got %+v", i, o)
			}
		}
	})
}

// A cancelled QueryEach must return the cause of the cancellation, not an error about the next answer of git.
func TestQueryEachReturnsCancellationCause(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	catFile, err := OpenRepo(l).OpenCatFile(t.Context())
	l.Must(err)
	defer catFile.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough, visited := errors.New("enough"), 0
	err = catFile.QueryEach(ctx, "info", []string{l.Git("rev-parse", "main"), strings.Repeat("1", 40)}, func(int, CatFileAnswer) error {
		visited++
		cancel(enough)
		return nil
	})
	if !errors.Is(err, enough) || visited != 1 {
		t.Errorf("got %v after %d answers", err, visited)
	}
}
