// Package lock owns the lock of one directory: who may change what the directory stands for, one at a time.
//
// The mutual exclusion is the kernel's flock on lock.flock and nothing else. It ends with its last holder, however
// that one ends, so there is no stale lock and nothing to break. What else is written, the text inside lock.flock and
// the pid file lock beside it, is a label for people: written only while the flock is held, believed by nobody, and
// never able to veto.
//
// The package must never unlink lock.flock (two processes would then hold two different files), never poll (the kernel
// queues the waiting fairly, a poller starves), never decide on a pid, and never know what the lock protects.
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
	flockName = "lock.flock" // the truth
	pidName   = "lock"       // the label, as nightlyone/lockfile writes it
)

// Request says which lock is wanted, for what, and how long to wait for it.
type Request struct {
	Dir     string        // required: directory of the lock files, made when missing; its parent must exist
	Command string        // what the holder is doing, for the label
	Timeout time.Duration // 0 = one try, negative = for ever
	Slow    func(Holder)  // called once after one second of waiting, by the waiting goroutine; may be nil

	slowAfter time.Duration // for tests: 0 means one second
}

// Acquire takes the lock of req.Dir, waiting for it as long as req.Timeout says.
//
// When the lock is not free in time the error is a *TimeoutError. When ctx ends first the error wraps its cause.
// Either way nothing stays held: a wait given up lets go the moment its turn comes. Two calls in one process exclude
// each other as two processes do.
func Acquire(ctx context.Context, req Request) (*Lock, error) {
	if req.Dir == "" {
		return nil, errors.New("acquire lock: no directory given")
	}
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return nil, fmt.Errorf("acquire lock of %s: %w", req.Dir, err)
	}
	path := filepath.Join(dir, flockName)

	// One clock for all rounds: a file replaced under us must not buy another timeout.
	w := newWait(req)
	defer w.stop()
	for {
		if ctx.Err() != nil {
			return nil, cancelled(ctx, path)
		}
		f, err := open(dir, path)
		if err != nil {
			return nil, fmt.Errorf("acquire lock: %w", err)
		}
		if err := w.lock(ctx, f, unix.LOCK_EX); err != nil {
			return nil, err
		}
		current, err := isCurrent(f, path)
		if current {
			return hold(f, dir, req.Command), nil
		}
		// What we locked is no longer what others will open, so it excludes nobody.
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
	// LabelErr says why the label is missing or incomplete. The lock is held all the same.
	LabelErr error

	file    *os.File
	pidFile lockfile.Lockfile // empty when it could not be written
	release sync.Once
}

// File is the descriptor that carries the lock. A child that changes what the lock protects must inherit it
// (exec.Cmd.ExtraFiles), so that killing its parent does not free the lock under it. The lock lasts as long as any
// process has it open: never pass it to one that may outlive the change.
func (l *Lock) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Release removes the label and gives the lock up. Every call after the first does nothing.
//
// It closes and never says LOCK_UN, which would take the lock from a child that inherited it and is still at work. For
// that child's sake the text in lock.flock stays too: it alone says whose child that is, and it is read only
// while somebody holds the lock.
//
// A child that is just being started has a copy of every descriptor until its exec is through, so a Release meanwhile
// takes effect that moment later. Closing under syscall.ForkLock was tried: it makes this rarer, not impossible.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	var err error
	l.release.Do(func() {
		// Where somebody has removed the lock under us, the label is that of who made it anew.
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

// TimeoutError says that the lock was not free in time. Acquire returns a pointer to it.
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

// Held reports whether somebody holds the lock of dir now. It creates nothing.
//
// The answer may be old when it arrives: it is for reports, not for decisions. To find out, the lock is
// shared for an instant, in which somebody else's Acquire with Timeout 0 fails.
func Held(dir string) (bool, error) {
	// O_NONBLOCK: opening a fifo somebody put there would wait for its writer.
	f, err := os.OpenFile(filepath.Join(dir, flockName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
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

// open opens the lock file, and makes it and its directory when they are missing.
//
// Modes follow the parent directory, not the umask: in a repository that a group shares, a lock
// that only its first user can open would lock the others out for good.
func open(dir, path string) (*os.File, error) {
	madeDir, err := makeDir(dir)
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
	// Who made the directory answers for the file as well: another process may have created the file
	// between our mkdir and our chmod, and copied a mode the umask had cut.
	if err == nil && (madeDir || madeFile) && info.Mode().Perm() != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// makeDir makes dir, when it is missing, with the permissions of its parent, and says whether it did.
func makeDir(dir string) (bool, error) {
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
	// Not only for the umask: mkdir(2) ignores the setgid bit.
	if err := os.Chmod(dir, mode); err != nil {
		os.Remove(dir) // the next one to come shall find it missing again, not half made
		return false, err
	}
	return true, nil
}

// openOrCreate opens path for reading and writing and says whether it created it. It follows no symbolic link, so that
// the lock cannot be led to another file.
func openOrCreate(path string, mode fs.FileMode) (f *os.File, created bool, err error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		if f, err = os.OpenFile(path, flags, 0); !errors.Is(err, fs.ErrNotExist) {
			return f, false, err
		}
		if f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, mode); !errors.Is(err, fs.ErrExist) {
			return f, true, err
		}
		// Somebody created it between the two; now the first will do.
	}
}

// isCurrent reports whether f is still the file that path names.
func isCurrent(f *os.File, path string) (bool, error) {
	ours, err := f.Stat()
	if err != nil {
		return false, err
	}
	theirs, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(ours, theirs), nil
}

// wait is the patience of one Acquire.
type wait struct {
	req     Request
	start   time.Time
	slow    *time.Timer
	expired *time.Timer
}

func newWait(req Request) *wait {
	if req.slowAfter == 0 {
		req.slowAfter = time.Second
	}
	w := &wait{req: req, start: time.Now(), slow: time.NewTimer(req.slowAfter), expired: time.NewTimer(req.Timeout)}
	if req.Slow == nil {
		w.slow.Stop()
	}
	if req.Timeout < 0 {
		w.expired.Stop() // a stopped timer's channel stays silent, even if the timer was due at once
	}
	return w
}

func (w *wait) stop() {
	w.slow.Stop()
	w.expired.Stop()
}

// lock locks f, in the way that how says. When it fails it has closed f, or will as soon as the kernel lets go of it.
func (w *wait) lock(ctx context.Context, f *os.File, how int) error {
	err := flock(f, how|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return fmt.Errorf("acquire lock: %w", err)
	case w.req.Timeout == 0:
		defer f.Close()
		return w.timeout(f)
	}

	// A blocking flock cannot be called off, so a goroutine of its own makes the call. From here on f is that
	// goroutine's to close, unless we take what it has won.
	won := make(chan error)
	gone := make(chan struct{})
	go func() {
		err := flock(f, how)
		select {
		case won <- err:
		case <-gone:
			f.Close()
		}
	}()
	for {
		select {
		case err := <-won:
			if err != nil {
				f.Close()
				return fmt.Errorf("acquire lock: %w", err)
			}
			return nil
		case <-w.slow.C:
			w.req.Slow(readHolder(f))
		case <-w.expired.C:
			defer close(gone) // after the holder has been read
			return w.timeout(f)
		case <-ctx.Done():
			close(gone)
			return cancelled(ctx, f.Name())
		}
	}
}

func (w *wait) timeout(f *os.File) error {
	return &TimeoutError{Path: f.Name(), Holder: readHolder(f), Waited: time.Since(w.start)}
}

func cancelled(ctx context.Context, path string) error {
	return fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
}

// hold puts the labels on a lock that f has just won.
func hold(f *os.File, dir, command string) *Lock {
	// The holder comes first: until it is written, who asks is told of our predecessor.
	holderErr := writeHolder(f, thisProcess(command))
	pidFile, pidErr := writePidFile(dir)
	return &Lock{file: f, pidFile: pidFile, LabelErr: errors.Join(holderErr, pidErr)}
}

func flock(f *os.File, how int) error {
	defer runtime.KeepAlive(f) // a finalizer that closed f would free the descriptor number for somebody else's file
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
