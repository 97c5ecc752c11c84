package store

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MaxCommandLog bounds the size of the file of a CommandLog in bytes.
const MaxCommandLog = 64 << 20

// CommandLog is a writer that copies the output of a command to a file and to another writer, which gets everything. Write
// never fails: a command must not die because its output could not be stored.
type CommandLog struct {
	Path string // of the file; empty if it could not be created

	output    io.Writer // may be nil
	file      *os.File  // may be nil
	remaining int
	warn      func(format string, args ...any)
}

// OpenCommandLog truncates or creates the file of a log. A process that has the old one open appends to the new one. If that
// fails, there is a warning and only output gets what is written.
func OpenCommandLog(path string, output io.Writer, warn func(format string, args ...any)) *CommandLog {
	l := &CommandLog{output: output, remaining: MaxCommandLog, warn: warn}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		warn("the output is not logged: %v", err)
		return l
	}
	l.file, l.Path = file, path
	return l
}

func (l *CommandLog) Write(p []byte) (int, error) {
	l.WriteFile(p)
	if l.output != nil {
		if _, err := l.output.Write(p); err != nil {
			l.output = nil
		}
	}
	return len(p), nil
}

// WriteFile writes to the file alone.
func (l *CommandLog) WriteFile(p []byte) {
	if l.file == nil || l.remaining == 0 {
		return
	}
	n := min(len(p), l.remaining)
	_, err := l.file.Write(p[:n])
	if l.remaining -= n; err == nil && l.remaining == 0 {
		_, err = l.file.WriteString("\n# truncated: the output is larger than the log may be\n")
	}
	if err != nil {
		l.warn("the log %s is incomplete: %v", l.Path, err)
		l.remaining = 0
	}
}

// Close closes the file. Write errors were reported already.
func (l *CommandLog) Close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}
