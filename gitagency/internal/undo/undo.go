// Package undo is the backbone of every transaction: named steps that change the world, and the
// undos they registered, run backwards when a later step fails.
//
// It decides nothing. What an undo may touch, and how it makes sure that it touches only what this
// very run created, is the business of whoever registers it.
package undo

import (
	"context"
	"fmt"
)

// Tx is a transaction under way. The zero value is ready.
type Tx struct {
	// Fault, when set, is asked at "<step>:before" and "<step>:after" of every step; its error
	// fails the step there. Only tests set it.
	Fault func(ctx context.Context, point string) error

	// Log hears of every undo that failed. Nil drops nothing: Rollback returns them too.
	Log func(error)

	undos []entry
}

type entry struct {
	name string
	undo func(context.Context) error
}

// Step runs one named step, unless ctx has ended; then the cause is the error.
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

// Undo registers how to take a step back. Call it inside the step: on the line after a change that
// either happens or does not, on the line before one that can happen by halves.
func (t *Tx) Undo(name string, undo func(context.Context) error) {
	t.undos = append(t.undos, entry{name, undo})
}

// Rollback runs every registered undo, last first, whatever the others say, and returns what
// failed. A second call has nothing left to do.
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

// Commit forgets every undo: what was done stays.
func (t *Tx) Commit() { t.undos = nil }

func (t *Tx) fault(ctx context.Context, point string) error {
	if t.Fault == nil {
		return nil
	}
	return t.Fault(ctx, point)
}
