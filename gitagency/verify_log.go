package gitagency

import (
	"io"
	"os"
)

// mostVerifyLog is how much of what is written is kept. All of it is shown.
const mostVerifyLog = 64 << 20

// verifyLog keeps what is written to it, and shows it. It never refuses anything: a command is not ended because its
// words were lost.
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
