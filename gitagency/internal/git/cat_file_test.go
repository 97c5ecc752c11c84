package git

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// However many are asked for, and however long their names are, each gets its own answer and nobody waits for the other.
func TestManyObjectsAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	teller, err := repo.openCatFile(t.Context())
	l.must(err)
	defer teller.close()
	head := l.git("rev-parse", "main")
	var names []string
	for range 300 {
		names = append(names, head, strings.Repeat("x", 500))
	}
	within(t, "answered", func() {
		found, err := teller.lookup(names...)
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
	l := newLab(t)
	teller, err := l.open().openCatFile(t.Context())
	l.must(err)
	defer teller.close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough, judged := errors.New("enough"), 0
	err = teller.queryEach(ctx, "info", []string{l.git("rev-parse", "main"), strings.Repeat("1", 40)}, func(int, catFileAnswer) error {
		judged++
		cancel(enough)
		return nil
	})
	if !errors.Is(err, enough) || judged != 1 {
		t.Errorf("%v, after %d", err, judged)
	}
}
