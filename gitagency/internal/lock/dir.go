package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A directory can also be locked itself, without a lock file in it. Any number of processes may hold it shared; one may
// hold it exclusively, which waits for all of them and blocks new ones meanwhile. This is an flock, and lasts until the
// last process that has the descriptor ends. Every process that can open the directory for reading can take it: the
// directory must be one that other users and commands in sandboxes cannot open.

// AcquireDirShared locks a directory shared. It waits up to timeout for an exclusive holder (0: one attempt; negative:
// no limit); after that the error is a *TimeoutError.
func AcquireDirShared(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	return acquireDir(ctx, dir, timeout, unix.LOCK_SH)
}

// AcquireDirExclusive locks a directory exclusively. The error is a *TimeoutError when it is still locked after timeout.
func AcquireDirExclusive(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	return acquireDir(ctx, dir, timeout, unix.LOCK_EX)
}

// HoldDir makes a directory and locks it exclusively, without a limit of time. release removes it: it exists only while a process has
// it, or after a kill.
func HoldDir(ctx context.Context, dir string) (release func() error, err error) {
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		held, err := AcquireDirExclusive(ctx, dir, -1)
		if errors.Is(err, os.ErrNotExist) {
			continue // the process that had it has removed it
		}
		if err != nil {
			return nil, err
		}
		return func() error {
			err := os.Remove(dir)
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return errors.Join(err, held.Close())
		}, nil
	}
}

func acquireDir(ctx context.Context, dir string, timeout time.Duration, op int) (*os.File, error) {
	w := newWaiter(Request{Timeout: timeout})
	defer w.stop()
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := w.await(ctx, f, flockAs(op), nil); err != nil {
		return nil, err
	}
	current, err := isCurrent(f, dir)
	if err == nil && !current {
		err = &os.PathError{Op: "lock directory", Path: dir, Err: os.ErrNotExist} // removed while we waited
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
