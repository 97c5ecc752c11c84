package gitagency

import (
	"io"
	"os"
)

// maxVerifyLog bounds the size of the log file in bytes. The output writer gets everything.
const mostVerifyLog = 64 << 20

// verifyLog is a writer that copies the output of a command to a log file and to another writer. Write never fails: a
// command must not die because its output could not be stored.
type verifyLog struct {
	shown io.Writer // may be nil
	file  *os.File  // may be nil
	room  int
	warn  func(format string, args ...any)
}

func (l *verifyLog) Write(p []byte) (int, error) {
	l.keep(p)
	if l.shown != nil {
		if _, err := l.shown.Write(p); err != nil {
			l.shown = nil
		}
	}
	return len(p), nil
}

func (l *verifyLog) keep(p []byte) {
	if l.file == nil || l.room == 0 {
		return
	}
	n := min(len(p), l.room)
	_, err := l.file.Write(p[:n])
	if l.room -= n; err == nil && l.room == 0 {
		_, err = l.file.WriteString("\n# the rest was too much to be kept\n")
	}
	if err != nil {
		l.warn("not all that was written is kept: %v", err)
		l.room = 0
	}
}
