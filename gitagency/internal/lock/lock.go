// Package lock owns the exclusive lock of one directory, and shared and exclusive locks on a directory itself.
//
// Mutual exclusion comes from the kernel's flock on the file lock.flock and from nothing else. The kernel releases it
// when the last process that has the descriptor open ends, so there are no stale locks and nothing to break. The text
// inside lock.flock and the pid file "lock" beside it are labels for people: they are written only while the flock is
// held, no code trusts them, and they can never refuse the lock.
//
// The package must never unlink lock.flock (two processes would then hold two different files), never poll (the kernel
// queues waiters fairly, a poller starves), never decide on a pid, and never know what the lock protects.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/nightlyone/lockfile"
	"golang.org/x/sys/unix"
)

const (
	flockFileName = "lock.flock" // the file that is locked
	pidFileName   = "lock"       // the label, written by nightlyone/lockfile
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
		if err := w.flock(ctx, f, unix.LOCK_EX); err != nil {
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
// It closes the descriptor and never uses LOCK_UN, which would release the lock under a child that inherited it and is
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

// IsHeld reports whether the lock of dir is held now. It creates nothing.
//
// The answer may be outdated when it arrives: it is for reports, not for decisions. The test takes the lock shared for
// an instant, in which another process's Acquire with Timeout 0 fails.
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
	switch err := flock(f, unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("probe lock: %w", err)
	}
	return false, nil
}

// openLockFile opens the lock file, and creates it and its directory when they are missing.
//
// Modes follow the parent directory, not the umask: in a repository shared by a group, a lock that only its first user
// can open would lock the others out for good.
func openLockFile(dir, path string) (*os.File, error) {
	madeDir, err := mkdirLikeParent(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	mode := info.Mode() & 0o666
	f, madeFile, err := openOrCreate(path, mode)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	// The process that created the directory also fixes the mode of the file: another process may have created the file
	// between our mkdir and our chmod, and copied a mode that the umask had reduced.
	if err == nil && (madeDir || madeFile) && info.Mode().Perm() != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mkdirLikeParent creates dir, when missing, with the permissions of its parent, and reports whether it did.
func mkdirLikeParent(dir string) (bool, error) {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	mode := parent.Mode() & (fs.ModePerm | fs.ModeSetgid)
	if err := os.Mkdir(dir, mode.Perm()); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	// The chmod is not only for the umask: mkdir(2) ignores the setgid bit.
	if err := os.Chmod(dir, mode); err != nil {
		os.Remove(dir) // the next caller must not find it with the wrong mode
		return false, err
	}
	return true, nil
}

// openOrCreate opens path for reading and writing and reports whether it created the file. It follows no symbolic link,
// which could redirect the lock to another file.
func openOrCreate(path string, mode fs.FileMode) (f *os.File, created bool, err error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		if f, err = os.OpenFile(path, flags, 0); !errors.Is(err, fs.ErrNotExist) {
			return f, false, err
		}
		if f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, mode); !errors.Is(err, fs.ErrExist) {
			return f, true, err
		}
		// Another process created it between the two calls: open it again.
	}
}

// isCurrent reports whether path still names the file f.
func isCurrent(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(opened, named), nil
}

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

// flock locks f with the operation op (LOCK_EX or LOCK_SH). On failure it has closed f, or closes it as soon as the
// blocking flock returns.
func (w *waiter) flock(ctx context.Context, f *os.File, op int) error {
	err := flock(f, op|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return fmt.Errorf("acquire lock: %w", err)
	case w.req.Timeout == 0:
		defer f.Close()
		return w.timeoutError(f)
	}

	// A blocking flock cannot be cancelled, so a separate goroutine makes the call. From here on that goroutine closes
	// f, unless we receive its result.
	result := make(chan error)
	abandoned := make(chan struct{})
	go func() {
		err := flock(f, op)
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
		case <-w.slow.C:
			w.req.OnSlow(readHolder(f))
		case <-w.expired.C:
			defer close(abandoned) // after the holder has been read
			return w.timeoutError(f)
		case <-ctx.Done():
			close(abandoned)
			return cancelledError(ctx, f.Name())
		}
	}
}

func (w *waiter) timeoutError(f *os.File) error {
	return &TimeoutError{Path: f.Name(), Holder: readHolder(f), Waited: time.Since(w.start)}
}

func cancelledError(ctx context.Context, path string) error {
	return fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
}

// label writes the holder and the pid file of a lock that f has just won.
func label(f *os.File, dir, command string) *Lock {
	// The holder comes first: until it is written, waiters are told the name of our predecessor.
	holderErr := writeHolder(f, currentHolder(command))
	pidFile, pidErr := writePidFile(dir)
	return &Lock{file: f, pidFile: pidFile, LabelErr: errors.Join(holderErr, pidErr)}
}

func flock(f *os.File, op int) error {
	defer runtime.KeepAlive(f) // a finalizer that closed f would free the descriptor number for another file
	for {
		switch err := unix.Flock(int(f.Fd()), op); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
