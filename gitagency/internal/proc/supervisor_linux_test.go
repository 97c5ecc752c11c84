package proc

import (
	"errors"
	"os"
)

// The test binary is also the executable of supervisors. Its walls are only a /proc of the pid namespace, and the
// failures that a plan asks for.
func init() { Supervise(WallBuilder{Apply: applyForTests, Restrict: restrictForTests}) }

// Plans of the tests.
const (
	planNothing       = "nothing"
	planApplyFails    = "no raise"
	planRestrictFails = "no shut"
)

func applyForTests(plan []byte) error {
	if string(plan) == planApplyFails {
		return errors.New("the wall fell over")
	}
	return PIDNamespace.setup()
}

func restrictForTests(plan []byte, _ bool) error {
	switch string(plan) {
	case planRestrictFails:
		return errors.New("the wall has a hole")
	case planNothing:
		return nil
	}
	return os.ErrInvalid
}
