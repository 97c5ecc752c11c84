package store

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The most of a history that is read: the end of it, and of that no line that is longer.
const (
	mostHistory = 64 << 20
	longestLine = 256 << 10
)

// Events passes every line of the history of an invocation to a function, the oldest first; the line is the
// function's for the time of the call only. Half a line, such as a full disk leaves, is a line too: whoever
// reads them knows what they look like. Without a history there is nothing to pass.
func (s Store) Events(repoID, invocationID string, each func(line []byte)) (err error) {
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
		return &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("not a file")}
	}
	from := max(fi.Size()-mostHistory, 0)
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, fi.Size()-from), longestLine)
	for within := from > 0; ; { // a line whose beginning or end nobody sees
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
