package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// lockRecord waits for the lock of a record and returns the file that holds it. Most updates also hold the repository
// lock, but a command that ends records its exit code without it. The lock is an flock on the record's own file, which
// every update replaces: a process that gets the lock of a replaced file locks the new one.
func lockRecord(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		mine, err := flock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if current, err := os.Stat(path); err == nil && os.SameFile(mine, current) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// flock waits for the exclusive lock of a file, and returns which file that is.
func flock(f *os.File) (os.FileInfo, error) {
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return f.Stat()
}

// withoutUpdates calls do while no process updates the record in a directory, so that a temporary file there was left by
// a killed process. A directory without a record has no updates.
func withoutUpdates(dir string, do func() error) error {
	held, err := lockRecord(metaPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return do()
	}
	if err != nil {
		return err
	}
	return errors.Join(do(), held.Close())
}

// IsRecordUpdate reports whether a path is that of a temporary file with the new content of a record.
func IsRecordUpdate(path string) bool {
	return strings.HasPrefix(filepath.Base(path), durable.TempPrefix+filepath.Base(metaPath(""))+"-")
}

// removeKilledUpdates removes the temporary files that killed updates of a record left. The caller has locked the record.
func removeKilledUpdates(record string) error {
	temps, err := durable.ListTemps(filepath.Dir(record))
	for _, path := range temps {
		if IsRecordUpdate(path) {
			err = errors.Join(err, durable.RemoveIfExists(path))
		}
	}
	return err
}

// RecordExec records the exit code of a command that has ended and the time of its end, unless the invocation has ended
// meanwhile: its end date then decides when it is pruned.
func (s Store) RecordExec(repoID, invocationID string, exitCode int, at time.Time) error {
	return updateJSONIf(s.InvocationMetaPath(repoID, invocationID), func(m *InvocationMeta) bool {
		if m.HasEnded() {
			return false
		}
		m.ExitCode, m.FinishedAt = json.Number(strconv.Itoa(exitCode)), &at
		return true
	})
}
