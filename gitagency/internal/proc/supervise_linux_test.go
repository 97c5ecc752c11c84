package proc

import (
	"errors"
	"os"
)

// The test binary is also the executable of supervisors. Its walls are only a /proc of the pid namespace, and the
// failures that a plan asks for.
func init() { Supervise(WallBuilder{Apply: raiseForTests, Restrict: shutForTests}) }

// Plans of the tests.
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
