package store

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Limits on reading an event log: only the end of the file is read, and longer lines are skipped.
const (
	maxHistoryBytes = 64 << 20
	maxEventLine    = 256 << 10
)

// maxEventLog is the size at which an event log is renamed to <name>.1, which replaces the one before it: an agent that
// tells much must not fill the disk.
const maxEventLog = 16 << 20

// AppendEvent appends one line to the event log of an invocation. People read the log on a terminal, and commands in it
// have arguments of agents, so characters that control a terminal are escaped.
func (s Store) AppendEvent(repoID, invocationID string, event any) error {
	return appendEvent(s.EventsPath(repoID, invocationID), event)
}

// AppendInput appends an event with a text that the user gave to the agent of an invocation. These have a log of their own:
// texts of users are not in the event log, which other programs follow.
func (s Store) AppendInput(repoID, invocationID string, event any) error {
	return appendEvent(s.inputsPath(repoID, invocationID), event)
}

// AppendOutputMark appends a line about the logs of an agent's output.
func (s Store) AppendOutputMark(repoID, invocationID string, mark any) error {
	return appendEvent(s.outputMarksPath(repoID, invocationID), mark)
}

func appendEvent(path string, event any) error {
	line, err := encodeJSON(event, "")
	if err != nil {
		return err
	}
	line = quote.JSON(line)
	f, err := lockEventLog(path)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if fi, err := f.Stat(); err == nil && fi.Size() > 0 {
		_, _ = f.ReadAt(last, fi.Size()-1) // on error, assume a complete line
	}
	if last[0] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// lockEventLog opens an event log and locks it, so that lines never mix, and so that an incomplete last line was left by a
// full disk and is not being written by another process. A log that is too long is rotated first.
func lockEventLog(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		mine, err := flock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		current, err := os.Lstat(path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, errors.Join(err, f.Close())
		case err == nil && os.SameFile(mine, current) && mine.Size() < maxEventLog:
			return f, nil
		case err == nil && os.SameFile(mine, current):
			err = os.Rename(path, RotatedPath(path))
		default: // another process has rotated it
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// RotatedPath returns the path of the older part of a log that is rotated.
func RotatedPath(path string) string { return path + ".1" }

// EventsPath returns the path of the event log of an invocation.
func (s Store) EventsPath(repoID, invocationID string) string {
	return eventsPath(s.InvocationDir(repoID, invocationID))
}

func (s Store) inputsPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "inputs.jsonl")
}

func (s Store) outputMarksPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "output.jsonl")
}

// ReadEvents passes every line of an invocation's event log to a function, oldest first. The line is valid only
// during the call. An incomplete line, as a full disk leaves it, is passed as well; the callback must recognise it. A
// missing log is not an error.
func (s Store) ReadEvents(repoID, invocationID string, each func(line []byte)) error {
	return readEvents(s.EventsPath(repoID, invocationID), each)
}

// ReadInputs is ReadEvents for the log of AppendInput.
func (s Store) ReadInputs(repoID, invocationID string, each func(line []byte)) error {
	return readEvents(s.inputsPath(repoID, invocationID), each)
}

// ReadOutputMarks is ReadEvents for the lines of AppendOutputMark.
func (s Store) ReadOutputMarks(repoID, invocationID string, each func(line []byte)) error {
	return readEvents(s.outputMarksPath(repoID, invocationID), each)
}

func readEvents(path string, each func(line []byte)) error {
	for _, part := range []string{RotatedPath(path), path} {
		if _, err := ReadEventLog(part, 0, each); err != nil {
			return err
		}
	}
	return nil
}

// ReadEventLog passes every line of an event log after an offset to a function, and returns the offset of the first
// incomplete line or of the end. A missing log has no lines.
func ReadEventLog(path string, from int64, each func(line []byte)) (next int64, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return from, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return from, err
	}
	if !fi.Mode().IsRegular() {
		return from, &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	within := fi.Size()-maxHistoryBytes > from // inside a line whose start or end was not read
	if next = from; within {
		next = fi.Size() - maxHistoryBytes
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, next, fi.Size()-next), maxEventLine)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			next, within = next+int64(len(line)), true
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return next, err
		}
		if !within && len(line) > 0 {
			each(line)
		}
		if err != nil {
			return next, nil
		}
		next, within = next+int64(len(line)), false
	}
}
