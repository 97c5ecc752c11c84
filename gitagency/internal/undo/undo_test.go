package undo

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestRollbackRunsAllUndosInReverse(t *testing.T) {
	t.Parallel()
	var order, logged []string
	bad := errors.New("bad")
	tx := Tx{Log: func(err error) { logged = append(logged, err.Error()) }}
	for _, name := range []string{"a", "b", "c"} {
		tx.Undo(name, func(context.Context) error {
			order = append(order, name)
			if name == "b" {
				return bad
			}
			return nil
		})
	}
	failed := tx.Rollback(t.Context())
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("order %v", order)
	}
	if len(failed) != 1 || !errors.Is(failed[0], bad) || !slices.Equal(logged, []string{"undo b: bad"}) {
		t.Errorf("failed %v, logged %v", failed, logged)
	}
	if again := tx.Rollback(t.Context()); again != nil || len(order) != 3 {
		t.Errorf("the second rollback ran undo functions: %v %v", again, order)
	}
}

func TestRollbackAfterCommitDoesNothing(t *testing.T) {
	t.Parallel()
	var tx Tx
	tx.Undo("a", func(context.Context) error { t.Error("undone"); return nil })
	tx.Commit()
	tx.Rollback(t.Context())
}

func TestFaultFailsStepBeforeOrAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point    string
		happened bool
	}{{"s:before", false}, {"s:after", true}} {
		boom := errors.New("boom")
		tx := Tx{Fault: func(_ context.Context, p string) error {
			if p == c.point {
				return boom
			}
			return nil
		}}
		happened := false
		err := tx.Step(t.Context(), "s", func() error { happened = true; return nil })
		if !errors.Is(err, boom) || happened != c.happened {
			t.Errorf("%s: %v, happened %v", c.point, err, happened)
		}
	}
}

func TestStepChecksContext(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	var tx Tx
	err := tx.Step(ctx, "s", func() error { t.Error("the step ran"); return nil })
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
