package proc

import "errors"

// Walls says what surrounds a room.
type Walls struct {
	Plan    []byte                 // for the builder
	Draw    func() ([]byte, error) // says what the plan is, where that takes a while: the room is made at the same time
	Network bool                   // the room has a network of its own
}

// WallError is a wall that could not be built; nothing was run.
type WallError struct{ Err error }

func (e *WallError) Error() string { return e.Err.Error() }
func (e *WallError) Unwrap() error { return e.Err }

// ErrNoRoom: nobody has a room open under that label, or it was just being closed.
var ErrNoRoom = errors.New("no room is open")
