package lock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	systemRoles["lock"] = func(words []string) error { return holdFileLock(words[0], words[1]) }
	systemRoles["read repeatedly"] = func(words []string) error { return lockForReadingRepeatedly(words[0]) }
}

// readerLocks are the locks that a process can take with a descriptor that is open for reading.
var readerLocks = map[string]func(f *os.File) error{
	"flock shared":    func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_SH) },
	"flock exclusive": func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) },
	"OFD read":        func(f *os.File) error { return setOFDLock(f, unix.F_RDLCK, false) },
	"POSIX read": func(f *os.File) error {
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	},
	"OFD read of one byte": func(f *os.File) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: 1 << 40, Len: 1})
	},
	"OFD read, waiting": func(f *os.File) error {
		fmt.Println("ready")
		return setOFDLock(f, unix.F_RDLCK, true)
	},
}

// TestReaderCannotDelayAcquire: a process that may only read the lock file, such as one in a sandbox of another
// repository, cannot keep the lock from those that may write it.
func TestReaderCannotDelayAcquire(t *testing.T) {
	t.Parallel()
	for kind := range readerLocks {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			release(t, acquire(t, dir))
			startUntilReady(t, helperCommand(t, "lock", filepath.Join(dir, "lock.flock"), kind))
			if held, err := IsHeld(dir); held || err != nil {
				t.Errorf("IsHeld = %v, %v", held, err)
			}
			for range 3 {
				first := acquire(t, dir)
				_, err := Acquire(t.Context(), Request{Dir: dir, Command: "second"})
				if timeout := asTimeout(t, err); timeout.Holder.PID != os.Getpid() || timeout.Holder.Command != "the test" {
					t.Errorf("holder is %+v", timeout.Holder)
				}
				if held, err := IsHeld(dir); !held || err != nil {
					t.Errorf("IsHeld = %v, %v", held, err)
				}
				release(t, first)
			}
			if left := namesIn(t, dir); left != "lock.flock" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestReaderCannotOvertakeWaiter: readers that wait for the holder too, and may get their lock first, do not keep it
// from a waiter.
func TestReaderCannotOvertakeWaiter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := acquire(t, dir)
	for range 4 {
		startUntilReady(t, helperCommand(t, "lock", filepath.Join(dir, "lock.flock"), "OFD read, waiting"))
	}
	waiter := startWaiting(t, t.Context(), dir)
	for range 4 {
		startUntilReady(t, helperCommand(t, "lock", filepath.Join(dir, "lock.flock"), "OFD read, waiting"))
	}
	release(t, l)
	got := <-waiter
	must(t, got.err)
	if _, err := Acquire(t.Context(), Request{Dir: dir}); asTimeout(t, err).Holder.Command != "waiter" {
		t.Error(err)
	}
	release(t, got.lock)
}

// TestLockExcludesProcessesDespiteReaders also kills processes while they replace the lock file.
func TestLockExcludesProcessesDespiteReaders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "agency")
	release(t, acquireIn(t, dir))
	for range 2 {
		startUntilReady(t, helperCommand(t, "read repeatedly", filepath.Join(dir, "lock.flock")))
	}
	startUntilReady(t, helperCommand(t, "lock", filepath.Join(dir, "lock.flock"), "OFD read"))
	before, err := os.Open(filepath.Join(dir, "lock.flock")) // open, so that its inode number is not used again
	must(t, err)
	defer before.Close()
	testExclusion(t, dir)
	if current, err := isCurrent(before, before.Name()); current || err != nil {
		t.Errorf("the lock file was never replaced: the readers did not get in the way (%v)", err)
	}
}

func acquireIn(t *testing.T, dir string) *Lock {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	return acquire(t, dir)
}

// TestReaderIsNamedWhereFileCannotBeReplaced: in a directory that we may not write to, a reader can delay us, and the
// error says which process does and why.
func TestReaderIsNamedWhereFileCannotBeReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.flock")
	writeFile(t, path, "")
	must(t, os.Chmod(path, 0o666))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o755) // so that it can be cleaned up
	reader := helperCommand(t, "lock", path, "OFD read")
	startUntilReady(t, reader)
	out := acquireInProcess(t, dir, "nobody")
	for _, want := range []string{"lock " + path + " is held by ", "; the lock file cannot be replaced: ", "permission denied"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q does not contain %q", out, want)
		}
	}
}

// TestTimeoutNamesForeignHolder: the label of a process that has died does not hide which process holds the lock.
func TestTimeoutNamesForeignHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, helperCommand(t, "hold and end", dir).Run()) // leaves its label
	holder := helperCommand(t, "lock", filepath.Join(dir, "lock.flock"), "OFD write")
	startUntilReady(t, holder)
	_, err := Acquire(t.Context(), Request{Dir: dir, Timeout: 10 * time.Millisecond})
	asTimeout(t, err)
	want := fmt.Sprintf(" is held by pid %d (%s lock ", holder.Process.Pid, filepath.Base(os.Args[0]))
	if got := strings.Replace(err.Error(), filepath.Dir(os.Args[0])+"/", "", 1); !strings.Contains(got, want) || strings.Contains(got, "died") {
		t.Errorf("%q does not contain %q", got, want)
	}
}

// TestTimeoutNamesHolderOfDirectory: a lock on a directory has no label.
func TestTimeoutNamesHolderOfDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := helperCommand(t, "lock", dir, "flock exclusive")
	startUntilReady(t, holder)
	_, err := AcquireDirShared(t.Context(), dir, 10*time.Millisecond)
	if got, want := asTimeout(t, err).Holder.String(), fmt.Sprintf("pid %d (", holder.Process.Pid); !strings.HasPrefix(got, want) {
		t.Errorf("held by %q, want %q…", got, want)
	}
}

// holdFileLock takes a lock of a file and holds it until the end of the input.
func holdFileLock(path, kind string) error {
	f, err := os.Open(path)
	if kind == "OFD write" {
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if kind == "OFD write" {
		err = setOFDLock(f, unix.F_WRLCK, false)
	} else {
		err = readerLocks[kind](f)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// lockForReadingRepeatedly locks the file that has a name, again and again, for reading until the end of the input.
func lockForReadingRepeatedly(path string) error {
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	fmt.Println("ready")
	for {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the test has ended
		}
		if err != nil {
			return err
		}
		lockErr := setOFDLock(f, unix.F_RDLCK, true)
		select {
		case err := <-ended:
			return errors.Join(err, f.Close())
		case <-time.After(time.Millisecond):
		}
		if err := errors.Join(lockErr, f.Close()); err != nil {
			return err
		}
	}
}
