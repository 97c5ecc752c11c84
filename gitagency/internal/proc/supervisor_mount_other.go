//go:build !linux

package proc

import (
	"context"
	"os"
	"os/exec"
)

func (m *Mount) applyMount(*exec.Cmd) error { return errNamespacesUnsupported }

// CloneMount fails: there are no namespaces.
func (r *Namespace) CloneMount(context.Context, string) (*os.File, error) {
	return nil, errNamespacesUnsupported
}
