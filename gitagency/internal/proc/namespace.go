package proc

import "errors"

// Walls describes the walls of a namespace.
type Walls struct {
	Plan       []byte                 // encoded plan, for the WallBuilder
	MakePlan   func() ([]byte, error) // makes the plan, where that takes a while: it runs in parallel with the fork
	OwnNetwork bool                   // create a network namespace
}

// WallError reports that a wall could not be built; no program was run.
type WallError struct{ Err error }

func (e *WallError) Error() string { return e.Err.Error() }
func (e *WallError) Unwrap() error { return e.Err }

// ErrNoNamespace reports that no namespace exists under a label, or that it is just being closed.
var ErrNoNamespace = errors.New("no such namespace")
