package setup

import (
	"context"
	"fmt"
)

// transaction is a list of undo functions, which run in reverse order if a later step fails.
type transaction struct {
	fault func(ctx context.Context, point string) error // Request.Fault
	undos []undoStep
}

type undoStep struct {
	name string
	undo func() error
}

// step runs one step, unless ctx has ended; then it returns the cause of ctx.
func (tx *transaction) step(ctx context.Context, name string, do func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := tx.failAt(ctx, name+":before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return tx.failAt(ctx, name+":after")
}

// addUndo registers the function that reverts a change, which must only touch files that this run has written.
func (tx *transaction) addUndo(name string, undo func() error) {
	tx.undos = append(tx.undos, undoStep{name, undo})
}

// rollback runs every undo function, last first, also after one has failed, and returns the errors.
func (tx *transaction) rollback() []error {
	var failed []error
	for i := len(tx.undos) - 1; i >= 0; i-- {
		if err := tx.undos[i].undo(); err != nil {
			failed = append(failed, fmt.Errorf("undo %s: %w", tx.undos[i].name, err))
		}
	}
	return failed
}

func (tx *transaction) failAt(ctx context.Context, point string) error {
	if tx.fault == nil {
		return nil
	}
	return tx.fault(ctx, "setup/"+point)
}
