package store

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Limits on reading an event log: only the end of the file is read, and longer lines are skipped.
const (
	maxHistoryBytes = 64 << 20
	maxEventLine    = 256 << 10
)

// ReadEvents passes every line of an invocation's event log to a function, oldest first. The line is valid only
// during the call. An incomplete line, as a full disk leaves it, is passed as well; the callback must recognise it. A
// missing log is not an error.
func (s Store) ReadEvents(repoID, invocationID string, each func(line []byte)) (err error) {
	f, err := os.OpenFile(eventsPath(s.InvocationDir(repoID, invocationID)), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	from := max(fi.Size()-maxHistoryBytes, 0)
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, fi.Size()-from), maxEventLine)
	for within := from > 0; ; { // inside a line whose start or end was not read
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			within = true
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if !within && len(line) > 0 {
			each(line)
		}
		if err != nil {
			return nil
		}
		within = false
	}
}
