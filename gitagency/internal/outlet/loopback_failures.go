package outlet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// RelayFailures are the failures of the loopback relays of a sandbox since its namespaces were created. They are in a
// file that the relay process writes and every command of the sandbox reads. Writers and readers lock it, each with an
// open file description of their own.
type RelayFailures struct {
	// NotListening are the errors of relays that could not be set up, by the address in the sandbox.
	NotListening map[string]string `json:"not_listening,omitempty"`
	// Connections are the failed connections, by the first target of the relay.
	Connections map[string]FailedConnections `json:"connections,omitempty"`
}

// FailedConnections describes connections that no target of a relay accepted.
type FailedConnections struct {
	Count int    `json:"count"`
	Error string `json:"error"` // of the last one
}

// maxFailuresSize limits what is read of a file with failures.
const maxFailuresSize = 1 << 20

// CreateRelayFailures replaces the file with failures, for a relay process.
func CreateRelayFailures(path string, failures RelayFailures) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := failures.write(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenRelayFailures opens the file with failures for ReadRelayFailures. It does not wait for the writer of a FIFO.
func OpenRelayFailures(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadRelayFailures reads the failures so far.
func ReadRelayFailures(f *os.File) (failures RelayFailures, err error) {
	err = withLock(f, unix.LOCK_SH, func() error {
		return json.NewDecoder(io.NewSectionReader(f, 0, maxFailuresSize)).Decode(&failures)
	})
	if err != nil {
		return RelayFailures{}, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return failures, nil
}

func (r RelayFailures) write(f *os.File) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return withLock(f, unix.LOCK_EX, func() error {
		if err := f.Truncate(0); err != nil {
			return err
		}
		_, err := f.WriteAt(data, 0)
		return err
	})
}

// withLock runs do while it has the lock of a file.
func withLock(f *os.File, kind int, do func() error) error {
	for {
		err := unix.Flock(int(f.Fd()), kind)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("flock", err)
		}
		break
	}
	err := do()
	return errors.Join(err, os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_UN)))
}
