//go:build !linux

package proc

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// Namespace is a set of kernel namespaces with walls around them. Only Linux has them.
type Namespace struct {
	Plan     []byte
	Created  bool
	Joinable bool
}

var errNamespacesUnsupported = &WallError{errors.New("this system has no namespaces")}

func (w Walls) StartNamespace(context.Context, string, ...*os.File) (*Namespace, error) {
	return nil, errNamespacesUnsupported
}

func (w Walls) BeginNamespace(context.Context, string, ...*os.File) (*Namespace, error) {
	return nil, errNamespacesUnsupported
}

func JoinNamespace(context.Context, string) (*Namespace, error)    { return nil, ErrNoNamespace }
func ObserveNamespace(context.Context, string) (*Namespace, error) { return nil, ErrNoNamespace }

func (r *Namespace) WaitReady(context.Context) error { return errNamespacesUnsupported }

func (r *Namespace) AllowJoin() error { return errNamespacesUnsupported }

func (r *Namespace) Run(context.Context, Task) (TaskResult, error) {
	return TaskResult{}, errNamespacesUnsupported
}

func (r *Namespace) ListenFile(context.Context, string) (*os.File, error) {
	return nil, errNamespacesUnsupported
}

func (r *Namespace) Listen(context.Context, string) (net.Listener, error) {
	return nil, errNamespacesUnsupported
}

func (r *Namespace) StartHelper([]string, ...*os.File) error { return errNamespacesUnsupported }

func (r *Namespace) Dial(context.Context, string) (net.Conn, error) {
	return nil, errNamespacesUnsupported
}

func (r *Namespace) OpenDir(context.Context, string) (*os.File, error) {
	return nil, errNamespacesUnsupported
}
func (r *Namespace) IsSoleUser() bool               { return true }
func (r *Namespace) EndedWithin(time.Duration) bool { return true }
func (r *Namespace) Wait(context.Context) error     { return nil }
func (r *Namespace) Close() error                   { return nil }

func (r *Namespace) sendTask([]*os.File) error    { return errNamespacesUnsupported }
func (r *Namespace) waitEnded(time.Duration) bool { return true }

func runInit(WallBuilder)                        {}
func namespaceSupervisor(WallBuilder) supervisor { return supervisor{} }
