package git

import (
	"strings"
	"testing"
)

// However many are asked for, and however long their names are, each gets its own answer and nobody waits for the other.
func TestManyObjectsAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	teller, err := repo.ask(t.Context())
	l.must(err)
	defer teller.close()
	head := l.git("rev-parse", "main")
	var names []string
	for range 300 {
		names = append(names, head, strings.Repeat("x", 500))
	}
	within(t, "answered", func() {
		found, err := teller.info(names...)
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
