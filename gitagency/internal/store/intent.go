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

// Intent is written before a creation changes anything else, and taken away after its record is
// there. One that is found later names everything the interrupted run may have made.
type Intent struct {
	SchemaVersion string    `json:"schema_version"`
	ID            string    `json:"id"`
	Command       string    `json:"command"`
	Tree          string    `json:"tree"`
	Branch        string    `json:"branch"` // full ref
	Base          string    `json:"base_commit"`
	Tip           string    `json:"tip,omitempty"`           // where the branch starts, if not at the base
	FromSnapshot  string    `json:"from_snapshot,omitempty"` // the commit whose files are in the tree, if not those of the tip
	Adopted       bool      `json:"adopted,omitempty"`       // the tree was there before and is not ours to remove
	Marked        bool      `json:"marked,omitempty"`        // … and neither is its marker
	Exclude       string    `json:"exclude,omitempty"`       // how info/exclude was before a line was added to it
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
}

// OpenIntent is an intent whose creation is under way: its file is locked for as long as we live,
// so that others can tell it from an interrupted one.
type OpenIntent struct {
	dir  string
	file *os.File
}

// WriteIntent records what is about to be made in dir.
func WriteIntent(dir string, intent Intent) (*OpenIntent, error) {
	intent.SchemaVersion = SchemaVersion
	data, err := encode(intent, "  ")
	if err != nil {
		return nil, err
	}
	f, err := durable.Create(intentPath(dir), data, 0o600, func(f *os.File) error {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		return nil, err
	}
	return &OpenIntent{dir, f}, nil
}

// Remove ends the creation. Safe to call twice.
func (i *OpenIntent) Remove() error {
	err := RemoveIntent(i.dir)
	if closeErr := i.file.Close(); err == nil && !errors.Is(closeErr, os.ErrClosed) {
		err = closeErr
	}
	return err
}

// RemoveIntent takes the intent of an interrupted creation away.
func RemoveIntent(dir string) error { return durable.Remove(intentPath(dir)) }

// readIntent says whether a creation of id in dir was interrupted (then it returns the intent, if there
// is one that can be believed) or is under way. Between making the directory and writing the intent
// there is nothing to go by but whether anybody holds the repository lock.
func readIntent(id, dir string, busy func() bool) (_ *Intent, underWay bool) {
	f, err := openIntentFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if isEmpty(dir) {
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
	data, err := durable.ReadFile(intentPath(dir), maxRecord)
	if err != nil {
		return nil, false
	}
	var intent Intent
	if err := json.Unmarshal(data, &intent); err != nil || !intent.names(id) {
		return nil, false
	}
	return &intent, false
}

func openIntentFile(dir string) (*os.File, error) {
	return os.OpenFile(intentPath(dir), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// names reports whether the intent is that of a creation of id, and complete.
func (i Intent) names(id string) bool {
	return i.ID == id && i.Tree != "" && (i.Adopted || i.Branch != "" && i.Base != "")
}

// isEmpty reports whether a directory is there and holds nothing but what is just being written.
func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), durable.TempPrefix)
	})
}
