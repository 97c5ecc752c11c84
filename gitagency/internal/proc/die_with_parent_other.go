//go:build !linux

package proc

import "os/exec"

// parentPipe does nothing: only Linux kills a program together with its parent.
type parentPipe struct{}

func (Command) newParentPipe(*exec.Cmd) (*parentPipe, error) { return nil, nil }
func (*parentPipe) killGroupWithUs(int) error                { return nil }
func (*parentPipe) close()                                   {}
