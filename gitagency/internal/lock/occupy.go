package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A directory can also be locked itself, with no file in it to tell: many may occupy it at the same time,
// and one may have it cleared, which waits for all of them and lets nobody in meanwhile. Like the other
// lock it is the kernel's, and lasts until the last process that has the descriptor is gone.

// Occupy takes part in the use of a directory. Whoever has it cleared is waited for, as long as timeout
// says (0 is one try, negative for ever); then the error is a *TimeoutError.
func Occupy(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	return lockDir(ctx, dir, timeout, unix.LOCK_SH)
}

// Clear has a directory to itself. The error is a *TimeoutError when somebody still occupies it in the end.
func Clear(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	return lockDir(ctx, dir, timeout, unix.LOCK_EX)
}

func lockDir(ctx context.Context, dir string, timeout time.Duration, how int) (*os.File, error) {
	w := newWait(Request{Timeout: timeout})
	defer w.stop()
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := w.lock(ctx, f, how); err != nil {
		return nil, err
	}
	current, err := isCurrent(f, dir)
	if err == nil && !current {
		err = &os.PathError{Op: "lock directory", Path: dir, Err: os.ErrNotExist} // gone while we waited
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ClearOpen is Clear for a directory that is open already, by a handle that nothing else is locked by. When it
// fails it has closed the handle, or will as soon as the kernel lets go of it.
func ClearOpen(ctx context.Context, dir *os.File, timeout time.Duration) error {
	w := newWait(Request{Timeout: timeout})
	defer w.stop()
	return w.lock(ctx, dir, unix.LOCK_EX)
}
