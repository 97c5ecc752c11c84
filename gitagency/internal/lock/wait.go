package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// waiter holds the timers of one Acquire.
type waiter struct {
	req     Request
	start   time.Time
	slow    *time.Timer
	expired *time.Timer
}

func newWaiter(req Request) *waiter {
	if req.slowAfter == 0 {
		req.slowAfter = time.Second
	}
	w := &waiter{req: req, start: time.Now(), slow: time.NewTimer(req.slowAfter), expired: time.NewTimer(req.Timeout)}
	if req.OnSlow == nil {
		w.slow.Stop()
	}
	if req.Timeout < 0 {
		w.expired.Stop() // a stopped timer's channel stays silent, even if the timer was due at once
	}
	return w
}

func (w *waiter) stop() {
	w.slow.Stop()
	w.expired.Stop()
}

// errReplaced reports that the path of a lock file names another file by now.
var errReplaced = errors.New("the lock file was replaced")

// lockFile takes the lock of the lock file f, and returns the file that carries it: f, or the one that it has put in its
// place because readers had locked f. On failure it has closed f, or closes it as soon as the blocking call returns.
func (w *waiter) lockFile(ctx context.Context, f *os.File) (locked *os.File, err error) {
	var replaceErr error // why f, which readers have locked, could not be replaced
	err = w.await(ctx, f, writeLock, func() (bool, error) {
		if current, err := isCurrent(f, f.Name()); err == nil && !current {
			return true, errReplaced
		}
		locked, replaceErr = replaceIfReadLocked(f)
		return locked != nil, nil
	})
	switch {
	case err != nil:
		return nil, joinTimeout(err, replaceErr)
	case locked != nil:
		return locked, nil
	}
	return f, nil
}

// joinTimeout adds the reason why the lock could not be taken from readers to a *TimeoutError.
func joinTimeout(err, reason error) error {
	var timeout *TimeoutError
	if reason == nil || !errors.As(err, &timeout) {
		return err
	}
	return fmt.Errorf("%w; the lock file cannot be replaced: %w", err, reason)
}

// recheckInterval is the time between two calls of the recheck function of await.
const recheckInterval = 100 * time.Millisecond

// await locks f by the system call lock. If the lock is not free at once, it calls recheck, if not nil, then and at
// intervals; the wait ends without the lock of f when recheck returns true. On failure it has closed f, or closes it as
// soon as the blocking call returns; also when recheck ended the wait.
func (w *waiter) await(ctx context.Context, f *os.File, lock kernelLock, recheck func() (bool, error)) error {
	err := lock(f, false)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return fmt.Errorf("acquire lock: %w", err)
	}
	var interval <-chan time.Time
	if recheck != nil {
		if done, err := recheck(); done {
			return errors.Join(err, f.Close())
		}
		ticker := time.NewTicker(recheckInterval)
		defer ticker.Stop()
		interval = ticker.C
	}
	if w.req.Timeout == 0 {
		defer f.Close()
		return w.timeoutError(f)
	}

	// The blocking call cannot be cancelled, so a separate goroutine makes it. From here on that goroutine closes f,
	// unless we receive its result.
	result := make(chan error)
	abandoned := make(chan struct{})
	go func() {
		err := lock(f, true)
		select {
		case result <- err:
		case <-abandoned:
			f.Close()
		}
	}()
	for {
		select {
		case err := <-result:
			if err != nil {
				f.Close()
				return fmt.Errorf("acquire lock: %w", err)
			}
			return nil
		case <-interval:
			if done, err := recheck(); done {
				close(abandoned)
				return err
			}
		case <-w.slow.C:
			w.req.OnSlow(findHolder(f))
		case <-w.expired.C:
			defer close(abandoned) // after the holder has been found
			return w.timeoutError(f)
		case <-ctx.Done():
			close(abandoned)
			return cancelledError(ctx, f.Name())
		}
	}
}

// timeoutError names the holder, unless the caller only tried a lock without a label: such callers try often.
func (w *waiter) timeoutError(f *os.File) error {
	e := &TimeoutError{Path: f.Name(), Waited: time.Since(w.start)}
	if w.req.Timeout != 0 || w.req.Dir != "" {
		e.Holder = findHolder(f)
	}
	return e
}

func cancelledError(ctx context.Context, path string) error {
	return fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
}

// kernelLock is a system call that locks an open file. Without wait the error is EWOULDBLOCK when the lock is not free.
type kernelLock func(f *os.File, wait bool) error

// flockAs returns the flock(2) with the operation op (LOCK_EX or LOCK_SH).
func flockAs(op int) kernelLock {
	return func(f *os.File, wait bool) error {
		if !wait {
			return retryInterrupted("flock", f, func(fd int) error { return unix.Flock(fd, op|unix.LOCK_NB) })
		}
		return retryInterrupted("flock", f, func(fd int) error { return unix.Flock(fd, op) })
	}
}

// isFlocked reports whether a process holds the flock of f. It takes the flock shared for an instant, in which another
// process's single attempt fails.
func isFlocked(f *os.File) (bool, error) {
	err := flockAs(unix.LOCK_SH)(f, false)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// retryInterrupted makes a system call with the descriptor of f until no signal interrupts it.
func retryInterrupted(name string, f *os.File, call func(fd int) error) error {
	defer runtime.KeepAlive(f) // a finalizer that closed f would free the descriptor number for another file
	for {
		switch err := call(int(f.Fd())); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: name, Path: f.Name(), Err: err}
		}
	}
}
