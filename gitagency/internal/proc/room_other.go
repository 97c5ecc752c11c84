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
type Room struct {
	Plan   []byte
	Opened bool
	Open   bool
}

var errNoRooms = &WallError{errors.New("this system has no namespaces")}

func (w Walls) Open(context.Context, string, ...*os.File) (*Room, error)  { return nil, errNoRooms }
func (w Walls) Begin(context.Context, string, ...*os.File) (*Room, error) { return nil, errNoRooms }

func Join(context.Context, string) (*Room, error)  { return nil, ErrNoRoom }
func Visit(context.Context, string) (*Room, error) { return nil, ErrNoRoom }

func (r *Room) Stand(context.Context) error                          { return errNoRooms }
func (r *Room) LetIn() error                                         { return errNoRooms }
func (r *Room) Run(context.Context, Task) (Ending, error)            { return Ending{}, errNoRooms }
func (r *Room) Listen(context.Context, string) (net.Listener, error) { return nil, errNoRooms }
func (r *Room) Dial(context.Context, string) (net.Conn, error)       { return nil, errNoRooms }
func (r *Room) Alone() bool                                          { return true }
func (r *Room) EndedWithin(time.Duration) bool                       { return true }
func (r *Room) Wait(context.Context) error                           { return nil }
func (r *Room) Close() error                                         { return nil }

func (r *Room) handOver([]*os.File) error { return errNoRooms }
func (r *Room) ended(time.Duration) bool  { return true }

func keep(Builder)              {}
func inside(Builder) supervisor { return supervisor{} }
