// Package lock owns the exclusive lock of one directory, and shared and exclusive locks on a directory itself.
//
// Mutual exclusion comes from the kernel's write lock on the file lock.flock and from nothing else: an open file
// description lock (fcntl, F_OFD_SETLK), which a process that may only read the file cannot take; where there are none,
// an flock. The kernel releases it when the last process that has the descriptor open ends, so there are no stale locks
// and nothing to break. The text inside lock.flock and the pid file "lock" beside it are labels for people: they are
// written only while the lock is held, no code trusts them, and they can never refuse the lock.
//
// The package must never remove lock.flock while a process may hold it (two processes would then hold two different
// files), never poll for the lock (the kernel queues waiters fairly, a poller starves), never decide on a pid, and never
// know what the lock protects.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nightlyone/lockfile"
	"golang.org/x/sys/unix"
)

const (
	flockFileName = "lock.flock" // the file that is locked
	pidFileName   = "lock"       // the label, written by nightlyone/lockfile

	// These exist only while lock.flock is replaced.
	replacementName  = "lock.flock.new" // the new lock file
	replaceGuardName = "lock.replace"   // excludes processes that replace the lock file from each other
)

// Request describes the lock to acquire and how long to wait for it.
type Request struct {
	Dir     string        // required: directory of the lock files, created when missing; its parent must exist
	Command string        // command of the holder, for the label
	Timeout time.Duration // 0: one attempt; negative: no limit
	OnSlow  func(Holder)  // called once after one second of waiting, by the waiting goroutine; may be nil

	slowAfter time.Duration // for tests; 0: one second
}

// Acquire takes the lock of req.Dir and waits for it up to req.Timeout.
//
// When the lock is not free in time the error is a *TimeoutError. When ctx ends first the error wraps its cause. In both
// cases the lock is not held: an abandoned wait releases the lock as soon as the kernel grants it. Two calls in one
// process exclude each other as two processes do.
func Acquire(ctx context.Context, req Request) (*Lock, error) {
	if req.Dir == "" {
		return nil, errors.New("acquire lock: no directory given")
	}
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return nil, fmt.Errorf("acquire lock of %s: %w", req.Dir, err)
	}
	path := filepath.Join(dir, flockFileName)

	// One timer for all rounds: replacing the lock file must not restart the timeout.
	w := newWaiter(req)
	defer w.stop()
	for {
		if ctx.Err() != nil {
			return nil, cancelledError(ctx, path)
		}
		f, err := openLockFile(dir, path)
		if err != nil {
			return nil, fmt.Errorf("acquire lock: %w", err)
		}
		f, err = w.lockFile(ctx, f)
		if errors.Is(err, errReplaced) {
			continue
		}
		if err != nil {
			return nil, err
		}
		current, err := isCurrent(f, path)
		if current {
			return label(f, dir, req.Command), nil
		}
		// The path names another file by now, so our lock excludes no other process.
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("acquire lock: %w", err)
		}
		if waited := time.Since(w.start); req.Timeout > 0 && waited >= req.Timeout {
			return nil, &TimeoutError{Path: path, Waited: waited}
		}
	}
}

// Lock is a held lock.
type Lock struct {
	// LabelErr is the reason why the label is missing or incomplete. The lock is held all the same.
	LabelErr error

	file        *os.File
	pidFile     lockfile.Lockfile // empty when it could not be written
	releaseOnce sync.Once
}

// File returns the descriptor that carries the lock. A child that changes what the lock protects must inherit it
// (exec.Cmd.ExtraFiles), so that the lock stays held while the child runs, even when its parent is killed. The lock
// lasts as long as any process has the descriptor open: never pass it to a process that may outlive the change.
func (l *Lock) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Release removes the label and gives the lock up. Every call after the first does nothing.
//
// It closes the descriptor and never unlocks, which would release the lock under a child that inherited it and is
// still working. For such a child the text in lock.flock stays, too: only that text names its parent, and it is read
// only while the lock is held.
//
// A child that is being forked has a copy of every descriptor until its exec, so a Release in that window takes effect
// a moment later. Closing under syscall.ForkLock was tried: it makes this rarer, not impossible.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	var err error
	l.releaseOnce.Do(func() {
		// If the lock file was removed and created again, the label belongs to the new holder.
		if current, _ := isCurrent(l.file, l.file.Name()); current {
			err = removePidFile(l.pidFile)
		}
		err = errors.Join(err, l.file.Close())
	})
	if err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

// TimeoutError reports that the lock was not free in time. Acquire returns a pointer to it.
type TimeoutError struct {
	Path   string
	Holder Holder
	Waited time.Duration
}

func (e *TimeoutError) Error() string {
	msg := fmt.Sprintf("lock %s is held by %s", e.Path, e.Holder)
	if waited := e.Waited.Round(10 * time.Millisecond); waited > 0 {
		msg += fmt.Sprintf("; gave up after %s", waited)
	}
	return msg
}

// IsHeld reports whether the lock of dir is held now. It creates nothing, and needs no permission to write.
//
// The answer may be outdated when it arrives: it is for reports, not for decisions.
func IsHeld(dir string) (bool, error) {
	// O_NONBLOCK: opening a FIFO would wait for its writer.
	f, err := os.OpenFile(filepath.Join(dir, flockFileName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe lock: %w", err)
	}
	defer f.Close()
	held, err := isWriteLocked(f)
	if err != nil {
		return false, fmt.Errorf("probe lock: %w", err)
	}
	return held, nil
}

// label writes the holder and the pid file of a lock that f has just won.
func label(f *os.File, dir, command string) *Lock {
	// The holder comes first: until it is written, waiters are told the name of our predecessor.
	holderErr := writeHolder(f, command)
	pidFile, pidErr := writePidFile(dir)
	return &Lock{file: f, pidFile: pidFile, LabelErr: errors.Join(holderErr, pidErr)}
}
