package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Intent is the write-ahead record of a creation. It is written before the creation changes anything else and removed
// after the record was written. An intent found later names everything that the interrupted creation may have made.
type Intent struct {
	SchemaVersion string    `json:"schema_version"`
	ID            string    `json:"id"`
	Command       string    `json:"command"`
	Tree          string    `json:"tree"`
	Branch        string    `json:"branch"` // full ref name
	BaseCommit    string    `json:"base_commit"`
	Tip           string    `json:"tip,omitempty"`           // commit at which the branch starts, if not the base
	FromSnapshot  string    `json:"from_snapshot,omitempty"` // commit whose files are in the tree, if not those of the tip
	Adopted       bool      `json:"adopted,omitempty"`       // the tree existed before, and undo must not remove it
	MarkerExisted bool      `json:"marked,omitempty"`        // the marker existed before, and undo must not remove it
	ExcludeBefore string    `json:"exclude,omitempty"`       // content of info/exclude before a line was added
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
}

// LockedIntent is the intent of a creation in progress. Its file is locked as long as this process lives, so that
// others can tell it from an interrupted creation.
type LockedIntent struct {
	dir  string
	file *os.File
}

// WriteIntent writes and locks the intent of a creation in dir.
func WriteIntent(dir string, intent Intent) (*LockedIntent, error) {
	intent.SchemaVersion = SchemaVersion
	data, err := encodeJSON(intent, "  ")
	if err != nil {
		return nil, err
	}
	f, err := durable.Create(intentPath(dir), data, 0o600, func(f *os.File) error {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		return nil, err
	}
	return &LockedIntent{dir, f}, nil
}

// File returns the locked file.
func (i *LockedIntent) File() *os.File { return i.file }

// Abandon leaves the intent as that of an interrupted creation.
func (i *LockedIntent) Abandon() error { return i.file.Close() }

// Remove deletes the intent and ends the creation. It may be called twice.
func (i *LockedIntent) Remove() error {
	err := RemoveIntent(i.dir)
	if closeErr := i.file.Close(); err == nil && !errors.Is(closeErr, os.ErrClosed) {
		err = closeErr
	}
	return err
}

// RemoveIntent deletes the intent of an interrupted creation.
func RemoveIntent(dir string) error { return durable.Remove(intentPath(dir)) }

// readIntent reports whether the creation of id in dir is still in progress, and otherwise returns the intent of the
// interrupted creation, or nil if there is no valid one. Between creating the directory and writing the intent, the
// only evidence of a creation in progress is that some process holds the repository lock, which busy reports.
func readIntent(id, dir string, busy func() bool) (_ *Intent, underWay bool) {
	f, err := openIntentFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if isEmptyDir(dir) {
			return nil, busy != nil && busy()
		}
		f, err = openIntentFile(dir) // it may have been written after the first attempt, which is why dir is not empty
	}
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, true
	}
	data, err := durable.ReadFile(intentPath(dir), maxRecordBytes)
	if err != nil {
		return nil, false
	}
	var intent Intent
	if err := json.Unmarshal(data, &intent); err != nil || !intent.isFor(id) {
		return nil, false
	}
	return &intent, false
}

func openIntentFile(dir string) (*os.File, error) {
	return os.OpenFile(intentPath(dir), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// isFor reports whether the intent is complete and belongs to a creation of id.
func (i Intent) isFor(id string) bool {
	return i.ID == id && i.Tree != "" && (i.Adopted || i.Branch != "" && i.BaseCommit != "")
}

// isEmptyDir reports whether a directory exists and holds nothing but temporary files of writes in progress.
func isEmptyDir(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), durable.TempPrefix)
	})
}
