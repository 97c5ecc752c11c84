package proc

import (
	"errors"
	"os"
)

// The tests' own binary is what supervisors are started from, too. Its walls are a /proc that shows what is
// in the room, and whatever a plan says.
func init() { Supervise(WallBuilder{Apply: raiseForTests, Restrict: shutForTests}) }

// Plans that tests ask for.
const (
	planNothing = "nothing"
	planNoRaise = "no raise"
	planNoShut  = "no shut"
)

func raiseForTests(plan []byte) error {
	if string(plan) == planNoRaise {
		return errors.New("the wall fell over")
	}
	return PIDNamespace.setup()
}

func shutForTests(plan []byte) error {
	switch string(plan) {
	case planNoShut:
		return errors.New("the wall has a hole")
	case planNothing:
		return nil
	}
	return os.ErrInvalid
}
