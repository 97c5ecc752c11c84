// Package undo runs transactions: named steps that change state, and the undo functions that the steps registered,
// run in reverse order when a later step fails.
//
// It owns no policy. The code that registers an undo function decides what it may touch, and makes sure that it only
// touches things that this run created.
package undo

import (
	"context"
	"fmt"
)

// Tx is a transaction in progress. The zero value is ready to use.
type Tx struct {
	// Fault, when set, is called at "<step>:before" and "<step>:after" of every step; its error fails the step at that
	// point. Only tests set it.
	Fault func(ctx context.Context, point string) error

	// Log receives the error of every failed undo. It may be nil: Rollback returns these errors as well.
	Log func(error)

	undos []undoEntry
}

type undoEntry struct {
	name string
	undo func(context.Context) error
}

// Step runs one named step, unless ctx has ended; then it returns the cause of ctx.
func (t *Tx) Step(ctx context.Context, name string, do func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := t.fault(ctx, name+":before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return t.fault(ctx, name+":after")
}

// Undo registers the function that reverts a step. Call it inside the step: on the line after a change that is atomic,
// on the line before a change that can be left incomplete.
func (t *Tx) Undo(name string, undo func(context.Context) error) {
	t.undos = append(t.undos, undoEntry{name, undo})
}

// Rollback runs every registered undo, last first, also after one has failed, and returns the errors. A second call
// does nothing.
func (t *Tx) Rollback(ctx context.Context) []error {
	var failed []error
	for len(t.undos) > 0 {
		last := t.undos[len(t.undos)-1]
		t.undos = t.undos[:len(t.undos)-1]
		if err := last.undo(ctx); err != nil {
			err = fmt.Errorf("undo %s: %w", last.name, err)
			failed = append(failed, err)
			if t.Log != nil {
				t.Log(err)
			}
		}
	}
	return failed
}

// Commit drops all registered undo functions, so that the changes stay.
func (t *Tx) Commit() { t.undos = nil }

func (t *Tx) fault(ctx context.Context, point string) error {
	if t.Fault == nil {
		return nil
	}
	return t.Fault(ctx, point)
}
